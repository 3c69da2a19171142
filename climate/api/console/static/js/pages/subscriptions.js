// Subscriptions and calendar feeds: lists and dialogs.

import { api, get, keepFresh, post, query } from "../api.js";
import {
  announce, button, check, confirm, debounce, dialog, field, form, h, icon, loading, name, plain, problemNote, replace,
} from "../dom.js";
import { typeTitle } from "../lease/words.js";
import { count, leaseLink, PagedTable, plainTable, plural, resourceLink, when } from "../tables/table.js";
import { may, refuse } from "./operators.js";
import { isConfirmed, receiver, showOnce, subscriptionDialog, targetTitle } from "./subscription_form.js";

export async function mount(element, { me, title }) {
  title("Subscriptions");
  if (!may(me, "subscriptions:get")) {
    return refuse(element, "Subscriptions", "Your role does not allow you to see the subscriptions of the project.");
  }
  const page = subscriptionsList(me);
  replace(element, h("div", { class: "page" },
    h("div", { class: "title" }, h("h1", { class: "grow" }, "Subscriptions"),
      h("div", { class: "actions" }, page.create)),
    h("p", { class: "subtitle" }, "climate sends notifications about leases to your service, your chat or your mailbox."),
    page.element));
  page.table.load();
  const stop = keepFresh(() => page.table.refresh(), 15);
  return () => {
    stop();
    page.table.stop();
  };
}

/** The list with its actions: `{element, create, table}`. */
export function subscriptionsList(me, { all = false } = {}) {
  const list = new SubscriptionsList(me, all);
  return { element: list.element, create: list.create, table: list.table };
}

class SubscriptionsList {
  constructor(me, all) {
    this.me = me;
    this.all = h("input", { type: "checkbox", id: "all-projects", checked: all, onchange: () => this.switched() });
    this.problem = h("div", { role: "alert" });
    this.table = new PagedTable({
      caption: "Subscriptions", path: "/v2/subscriptions", list: "subscriptions", columns: this.columns(),
      filter: () => ({ all_projects: this.all.checked ? "true" : "" }), empty: () => this.nothing(),
    });
    this.create = me.allowed["subscriptions:post"] ? button([icon("plus"), "Create subscription"],
      () => subscriptionDialog(me, null, () => this.table.refresh()), { kind: "primary", id: "create-subscription" })
        : null;
    const choice = me.allowed["subscriptions:get_all"] ? check("Subscriptions of all projects", this.all) : null;
    this.element = h("div", { class: "stack-20" }, choice, this.problem,
      h("section", { class: "card flush", "aria-label": "Subscriptions" }, this.table.element));
  }

  columns() {
    return [
      { label: "Receiver", header: true, cell: (item) => address(receiver(item)) },
      { label: "Kind", cell: (item) => targetTitle(item) },
      { label: "Notifications", cell: filters },
      ...(this.all && this.all.checked
        ? [{ label: "Project", cell: (item) => (item.all_projects ? "All projects" : name(item.project_id)) }] : []),
      { label: "State", cell: state },
      { label: "Last delivery", cell: (item) => when(item.delivered_at) },
      { label: "Dead letters", class: "number", cell: (item) => this.deadLetters(item) },
      ...(this.me.allowed["subscriptions:put"]
        ? [{ label: "Actions", hidden: true, class: "act", cell: (item) => this.actions(item) }] : []),
    ];
  }

  deadLetters(item) {
    if (!item.dead_letters) return "0";
    return h("button", { type: "button", class: "link", dataset: { focus: "letters" },
      "aria-label": `${item.dead_letters} dead letters of ${plain(receiver(item))}`,
      onclick: () => deadLettersDialog(item, { mayRedeliver: Boolean(this.me.allowed["subscriptions:put"]) },
        () => this.table.refresh()) }, count(item.dead_letters));
  }

  actions(item) {
    const active = item.status === "active";
    const of = ` ${plain(receiver(item))}`;
    const resume = { status: "active" };
    return h("span", { class: "row-actions" },
      active && !isConfirmed(item) ? button("Send confirmation", () => this.attempt("PATCH", item, resume),
        { kind: "small", "aria-label": `Send confirmation to${of}`, "data-focus": "confirm" }) : null,
      button("Change", () => subscriptionDialog(this.me, item, () => this.table.refresh()),
        { kind: "small", "aria-label": `Change${of}`, "data-focus": "change" }),
      button(active ? "Suspend" : "Resume", () => this.attempt("PATCH", item,
        { status: active ? "suspended" : "active" }),
        { kind: "small", "aria-label": `${active ? "Suspend" : "Resume"}${of}`, "data-focus": "status" }),
      this.me.allowed["subscriptions:delete"] ? button("Delete", () => this.remove(item),
        { kind: "small danger", "aria-label": `Delete${of}`, "data-focus": "delete" }) : null);
  }

  async remove(item) {
    const text = h("span", {}, "climate sends nothing more to ", name(receiver(item)), ", and forgets its dead letters.");
    if (await confirm({ title: "Delete the subscription", text, action: "Delete", danger: true })) this.attempt(
      "DELETE", item);
  }

  async attempt(method, item, body) {
    this.problem.replaceChildren();
    try {
      await api(method, `/v2/subscriptions/${encodeURIComponent(item.id)}`, { body });
      announce(method === "DELETE" ? "The subscription is deleted." : "The subscription has changed.");
    } catch (error) {
      replace(this.problem, problemNote(error));
    }
    this.table.refresh();
  }

  switched() {
    this.table.setColumns(this.columns());
    this.table.load({ first: true });
  }

  nothing() {
    return [h("p", { class: "strong" }, this.all.checked ? "No project has a subscription."
      : "The project has no subscription."),
      h("p", {}, "With one, you learn of each change of a lease without asking for it.")];
  }
}

/** An address without its scheme, which breaks at slashes if it is long. */
function address(url) {
  const parts = plain(url.replace(/^https:\/\//, "")).split("/");
  return h("bdi", {}, parts.map((part, at) => (at ? ["/", h("wbr"), part] : part)));
}

function filters({ event_types: types, lease_id: lease, resource_type: type }) {
  return h("span", {}, types.length ? types.map((item, at) => [at ? ", " : "", h("code", {}, plain(item))]) : "All",
    lease ? h("div", {}, "of the lease ", leaseLink(lease, `${lease.slice(0, 8)}...`)) : null,
    type ? h("div", {}, `of leases with ${typeTitle(type).toLowerCase()}`) : null);
}

function state(item) {
  const { status, reason } = item;
  const words = status !== "active" ? "Suspended" : !isConfirmed(item) ? "Not confirmed"
    : reason ? "Active, failing" : "Active";
  return h("span", {}, h("span", { class: "state" }, icon(words === "Active" ? "check" : "warning"), words),
    reason ? h("small", { class: "quiet reason" }, name(reason)) : null);
}

// The dead letters of a subscription.

const LETTERS = 200; // dead letters in the dialog

function deadLettersDialog(subscription, { mayRedeliver }, done) {
  const path = `/v2/subscriptions/${encodeURIComponent(subscription.id)}`;
  const content = h("div", { class: "stack" });
  const problem = h("div", { role: "alert" });
  dialog({ title: "Dead letters", wide: true, content: h("div", { class: "stack" },
    h("p", {}, "Notifications that ", name(receiver(subscription)), " did not accept. climate has stopped sending them."),
    problem, content) });
  const redeliver = async (body) => {
    problem.replaceChildren();
    try {
      const { redelivering } = await post(`${path}/redeliver`, body);
      announce(`${plural(redelivering, "notification")} will be sent again.`);
      done();
      await show();
    } catch (error) {
      replace(problem, problemNote(error));
    }
  };
  const show = () => loading(content, async () => draw(await get(`${path}/dead-letters${query({ limit: LETTERS })}`)),
    "the dead letters");
  const draw = ({ dead_letters: letters }) => {
    if (!letters.length) return h("p", { class: "empty" }, "There are no dead letters.");
    const more = letters.length < subscription.dead_letters
      ? h("p", { class: "hint" }, `The first ${count(letters.length)} of ${count(subscription.dead_letters)}.`) : null;
    return [mayRedeliver ? button("Send all again", () => redeliver({}), { kind: "primary" }) : null,
      lettersTable(letters, mayRedeliver, redeliver), more];
  };
  show();
}

function lettersTable(letters, mayRedeliver, redeliver) {
  return plainTable({
    caption: "Dead letters", items: letters, key: (item) => String(item.seq),
    columns: [
      { label: "Number", header: true, cell: (item) => count(item.seq) },
      { label: "Failed", cell: (item) => when(item.failed_at) },
      { label: "Attempts", class: "number", cell: (item) => count(item.attempts) },
      { label: "Reason", cell: (item) => name(item.reason) },
      ...(mayRedeliver ? [{ label: "Send again", hidden: true, class: "act",
        cell: (item) => (item.redelivering ? h("span", { class: "quiet" }, "Being sent")
        : button("Send again", () => redeliver({ seqs: [item.seq] }),
          { kind: "small", "aria-label": `Send ${plain(item.seq)} again` })) }] : []),
    ],
  });
}

// Calendar feeds of the project

export async function mountFeeds(element, { me, params, title }) {
  title("Calendar feeds");
  if (!may(me, "feeds:get")) {
    return refuse(element, "Calendar feeds", "Your role does not allow you to see the feeds of the project.");
  }
  const all = h("input",
    { type: "checkbox", id: "all-projects", onchange: () => { draw(); table.load({ first: true }); } });
  const columns = () => [
    { label: "Name", header: true, cell: (feed) => name(feed.name) },
    { label: "Shows", cell: (feed) => target(feed) },
    ...(all.checked ? [{ label: "Project", cell: (feed) => name(feed.project_id) }] : []),
    { label: "Created by", cell: (feed) => feed.user_id === me.user.id ? "You" : name(feed.user_id) },
    { label: "Created", cell: (feed) => when(feed.created_at) },
    { label: "Last read", cell: (feed) => when(feed.last_read_at) },
    ...(me.allowed["feeds:delete"]
      ? [{ label: "Revoke", hidden: true, class: "act", cell: (feed) => mayRevoke(me, feed)
        ? button("Revoke", () => revoke(feed),
          { kind: "danger small", "aria-label": `Revoke ${plain(feed.name)}`, "data-focus": "revoke" })
        : "" }] : []),
  ];
  const table = new PagedTable({
    caption: "Calendar feeds", path: "/v2/feeds", list: "feeds", columns: columns(),
    filter: () => ({ all_projects: all.checked ? "true" : "" }),
    empty: () => [h("p", { class: "strong" }, "The project has no calendar feed."),
      h("p", {}, "A feed shows leases in your own calendar, and keeps them up to date.")],
  });
  const draw = () => table.setColumns(columns());
  const problem = h("div", { role: "alert" });
  const revoke = async (feed) => {
    const text = "Its address leads nowhere from then on. Calendars that have subscribed to it get no more changes.";
    if (!(await confirm({ title: `Revoke the feed ${plain(feed.name)}`, text, action: "Revoke",
      danger: true }))) return;
    problem.replaceChildren();
    try {
      await api("DELETE", `/v2/feeds/${encodeURIComponent(feed.id)}`);
      announce("The feed is revoked.");
    } catch (error) {
      if (error.status !== 404) replace(problem, problemNote(error));
    }
    await table.load();
  };
  const create = () => feedDialog(me, {}, () => table.refresh());
  replace(element, h("div", { class: "page" },
    h("div", { class: "title" }, h("h1", { class: "grow" }, "Calendar feeds"), h("div", { class: "actions" },
      me.allowed["feeds:post"] ? button([icon("plus"), "Create feed"], create, { kind: "primary", id: "create-feed" })
        : null)),
    h("p", { class: "subtitle" }, "Everyone who has the address of a feed can read it without signing in."),
    me.allowed["feeds:get_all"] ? check("Feeds of all projects", all) : null, problem,
    h("section", { class: "card flush", "aria-label": "Calendar feeds" }, table.element)));
  table.load();
  if (me.allowed["feeds:post"] && params.get("scope") && params.get("id")) {
    feedDialog(me, { scope: params.get("scope"), id: params.get("id"), label: params.get("label") },
      () => table.refresh());
  }
  const stop = keepFresh(() => table.refresh(), 60);
  return () => {
    stop();
    table.stop();
  };
}

/** Only the user who created a feed revokes it, and administrators. */
function mayRevoke(me, feed) {
  return feed.user_id === me.user.id || me.allowed["feeds:delete_all"];
}

function target({ scope, target_id: id }) {
  const content = scope === "lease" ? leaseLink(id, id) : scope === "resource" ? resourceLink(id, id) : name(id);
  return h("span", {}, scopeWords(scope), " ", content);
}

// Creates a calendar feed and shows its secret address, once.

const SCOPES = { lease: "One lease", project: "All leases of a project", resource: "One resource" };

function scopeWords(scope) {
  return { lease: "Lease", project: "Project", resource: "Resource" }[scope] || scope;
}

/** Open the form that creates a feed. */
export function feedDialog(me, target = {}, done = () => {}) {
  const content = h("div", { class: "stack" });
  const submit = async (body) => {
    const feed = await post("/v2/feeds", body);
    done(feed);
    showOnce(content, box, { label: "Address of the feed", secret: feed.url,
      note: "Subscribe to this address in your calendar. Everyone who has it can read the feed, until you revoke it.",
      what: "address" });
  };
  replace(content, target.id ? known(target, submit) : choice(me, target.scope || "project", submit));
  const box = dialog({ title: "Create a calendar feed", content });
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
          plain(item.name), item.start ? `, from ${item.start.slice(0, 10)}` : "")));
      note.textContent = items.length ? "" : "Nothing has this in its name.";
    } catch (error) {
      note.textContent = error.detail || "The search has failed.";
    }
  };
  search.addEventListener("input", debounce(look, 250));
  look();
  return h("div", { class: "stack" }, field(`Search for a ${label.toLowerCase()}`, search),
    h("div", { class: "field" }, field(label, list).childNodes[0], list, note));
}

function filled(values) {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value));
}
