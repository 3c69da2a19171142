// Forms of a subscription, and its dead letters.

import { api, get, post, query } from "../api.js";
import { announce, button, dialog, h, name, plain, replace } from "../dom.js";
import { check, field, form, loading, problemNote } from "../forms.js";
import { typeTitle } from "../lease/words.js";
import { count, plural, when } from "./cells.js";
import { showOnce } from "./feed_dialog.js";
import { plainTable } from "./table.js";

const EVENT_TYPES = [
  ["lease.create", "A lease is made"],
  ["lease.update", "A lease changes"],
  ["lease.delete", "A lease is deleted"],
  ["lease.event.start_lease", "A lease starts"],
  ["lease.event.end_lease", "A lease ends"],
  ["lease.event.before_end_lease", "A lease ends soon"],
  ["lease.start_delayed", "A start waits for hosts"],
  ["lease.not_started", "A lease has never started"],
];
const KNOWN = EVENT_TYPES.map(([value]) => value);
const SECRET_BYTES = 32;
const LETTERS = 200; // dead letters in the dialog

/** A new secret in the form that the API reads. */
export function newSecret() {
  const bytes = crypto.getRandomValues(new Uint8Array(SECRET_BYTES));
  return `whsec_${btoa(String.fromCharCode(...bytes))}`;
}

/** Open the form of a new subscription, or of `subscription`. Calls `done` after the change. */
export function subscriptionDialog(me, subscription, done) {
  const content = h("div", { class: "stack" });
  const box = dialog({ title: subscription ? "Change the subscription" : "Create a subscription", content,
    wide: true });
  const submit = async (values, element) => {
    const { body, secret } = read(values, element, subscription);
    if (subscription) await api("PATCH", `/v2/subscriptions/${encodeURIComponent(subscription.id)}`, { body });
    else await post("/v2/subscriptions", body);
    done();
    if (!secret) {
      box.close();
      announce("The subscription has changed.");
      return;
    }
    showOnce(content, box, { label: "Secret of the signatures", secret, what: "secret",
      note: "Give this secret to your service. It checks with it that deliveries come from climate." });
  };
  const locate = (element, [key]) => (key === "event_types" ? element.elements.other_types : element.elements[key]);
  replace(content, form(formFields(me, subscription), subscription ? "Change" : "Create", submit, { locate }));
}

function formFields(me, subscription) {
  const now = subscription || { event_types: [], url: "", lease_id: "", resource_type: "" };
  const other = now.event_types.filter((item) => !KNOWN.includes(item));
  const boxes = EVENT_TYPES.map(([value, words]) =>
    check(words, h("input", { type: "checkbox", name: "event_types", value,
      checked: now.event_types.includes(value) })));
  const types = h("select", { name: "resource_type" }, h("option", { value: "" }, "Any"),
    (me.resource_types || []).map((item) => h("option", { value: item, selected: item === now.resource_type },
      typeTitle(item))));
  return [
    field("Receiver", h("input", { name: "url", type: "url", required: true, maxlength: 2000, value: now.url,
      placeholder: "https://" }),
        "The address of your service. climate sends CloudEvents to it by POST, over https only."),
    h("fieldset", { class: "group stack" }, h("legend", {}, "Which notifications"),
      h("p", { class: "hint" }, "Without a choice, all."), h("div", { class: "fields" }, boxes),
      field("Other types", h("input", { name: "other_types", value: other.join(" "), spellcheck: "false" }),
        "Separated by spaces. A * at the end stands for any rest: lease.event.*")),
    h("div", { class: "fields" },
      field("Only this lease",
        h("input", { name: "lease_id", maxlength: 36, value: now.lease_id || "", spellcheck: "false" }),
        "The id of a lease. Empty: all leases."),
      field("Only leases with", types)),
    subscription ? field("New secret", h("input", { name: "secret", autocomplete: "off", spellcheck: "false" }),
      "Empty: the secret stays.")
      : field("Secret", h("input", { name: "secret", autocomplete: "off", spellcheck: "false" }),
        "Empty: the console makes one and shows it once. Your own: whsec_ and the base64 of 24 to 64 bytes."),
    !subscription && me.allowed["notifications:get_all"]
      ? check("Notifications of all projects", h("input", { type: "checkbox", name: "all_projects" })) : null,
  ];
}

/** The body of the request, and a secret that was made here, to be shown. */
function read(values, element, subscription) {
  const chosen = [...element.querySelectorAll("input[name=event_types]:checked")].map((item) => item.value);
  const body = {
    url: values.url.trim(),
    event_types: [...chosen, ...values.other_types.split(/[\s,]+/).filter(Boolean)],
    lease_id: values.lease_id.trim() || null,
    resource_type: values.resource_type || null,
  };
  const own = values.secret.trim();
  const made = own || subscription ? "" : newSecret();
  if (own || made) body.secret = own || made;
  if (values.all_projects) body.all_projects = true;
  return { body, secret: made };
}

/** Open the dead letters of a subscription. Calls `done` after a redelivery. */
export function deadLettersDialog(subscription, { mayRedeliver }, done) {
  const path = `/v2/subscriptions/${encodeURIComponent(subscription.id)}`;
  const content = h("div", { class: "stack" });
  const problem = h("div", { role: "alert" });
  dialog({ title: "Dead letters", wide: true, content: h("div", { class: "stack" },
    h("p", {}, "Notifications that ", name(subscription.url), " did not accept. climate has stopped sending them."),
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
