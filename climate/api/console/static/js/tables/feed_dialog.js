// Creates a calendar feed and shows its secret address, once.

import { get, post, query } from "../api.js";
import { announce, button, dialog, h, name, plain, replace } from "../dom.js";
import { field, form } from "../forms.js";

const SCOPES = { lease: "One lease", project: "All leases of a project", resource: "One resource" };

/** What a feed shows, in words. */
export function scopeWords(scope) {
  return { lease: "Lease", project: "Project", resource: "Resource" }[scope] || scope;
}

/**
 * Open the form that creates a feed.
 * @param {object} me
 * @param {{scope?: string, id?: string, label?: string}} [target] what the feed is to show
 * @param {function(): void} [done] called when the feed exists
 */
export function feedDialog(me, target = {}, done = () => {}) {
  const content = h("div", { class: "stack" });
  const box = dialog({ title: "Create a calendar feed", content });
  const submit = async (body) => {
    const feed = await post("/v2/feeds", body);
    done(feed);
    showOnce(content, box, { label: "Address of the feed", secret: feed.url,
      note: "Subscribe to this address in your calendar. Everyone who has it can read the feed, until you revoke it.",
      what: "address" });
  };
  replace(content, target.id ? known(target, submit) : choice(me, target.scope || "project", submit));
}

function nameField() {
  return field("Name", h("input", { name: "name", maxlength: 80 }), "Optional. Calendars show it.");
}

function known({ scope, id, label }, submit) {
  return form([h("p", {}, `${scopeWords(scope)} `, h("b", {}, name(label || id)),
    ": the feed shows its leases from 30 days ago to a year ahead."), nameField()],
    "Create", (values) => submit(filled({ scope, id, name: values.name })), { busy: "Creating" });
}

function choice(me, chosen, submit) {
  const scope = h("select", { name: "scope" },
    Object.entries(SCOPES).map(([value, words]) => h("option", { value, selected: value === chosen }, words)));
  const target = h("div");
  const draw = () => replace(target, targetField(me, scope.value));
  scope.addEventListener("change", draw);
  draw();
  return form([field("What it shows", scope), target, nameField()], "Create", (values) => submit(filled(values)),
    { busy: "Creating" });
}

function targetField(me, scope) {
  if (scope === "project") return field("Project",
    h("input", { name: "id", required: true, value: me.project.id, readonly: !me.allowed["leases:get_all"] }));
  if (scope === "lease") return picker("Lease",
    async (text) => (await get(`/v2/leases${query({ limit: 200, sort: "-start" })}`)).leases.filter((lease) =>
      lease.name.includes(text) || lease.id === text));
  return picker("Resource",
    async (text) => (await get(`/v2/resources${query({ q: text, limit: 50, sort: "name" })}`)).resources);
}

/** A search box and a list of what it finds; the list has the chosen id. */
function picker(label, find) {
  const search = h("input", { type: "search", maxlength: 255 });
  const list = h("select", { name: "id", size: 6, required: true });
  const note = h("p", { class: "hint", role: "status" });
  let asked = 0;
  const look = async () => {
    asked += 1;
    const turn = asked;
    try {
      const items = await find(search.value.trim());
      if (turn !== asked) return;
      replace(list, items.map((item) =>
        h("option", { value: item.id },
          `${plain(item.name)}${item.start ? `, from ${item.start.slice(0, 10)}` : ""}`)));
      note.textContent = items.length ? "" : "Nothing has this in its name.";
    } catch (error) {
      note.textContent = error.detail || "The search has failed.";
    }
  };
  let timer = 0;
  search.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(look, 250); });
  look();
  return h("div", { class: "stack" }, field(`Search for a ${label.toLowerCase()}`, search),
    h("div", { class: "field" }, field(label, list).childNodes[0], list, note));
}

function filled(values) {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value));
}

/** Replace the content of a dialog by a secret that is shown this one time, with a button that copies it. */
export function showOnce(content, box, { label, secret, note, what }) {
  const input = h("input", { readonly: true, value: secret, class: "mono", onfocus: () => input.select() });
  const copy = button("Copy", () => copyText(input, copy), { kind: "primary" });
  replace(content, h("p", {}, note), field(label, input, `climate does not show this ${what} again.`),
    h("div", { class: "actions" }, copy, button("Done", () => box.close())));
  input.focus();
}

async function copyText(input, control) {
  try {
    await navigator.clipboard.writeText(input.value);
  } catch {
    input.focus();
    input.select(); // without permission, the user copies the selection
    announce("The text is selected: copy it with the keyboard.");
    return;
  }
  control.textContent = "Copied";
  announce("Copied");
}
