// The form of a subscription: a service of your own, a chat, or a mailbox.

import { api, post } from "../api.js";
import { announce, button, check, dialog, field, form, h, name, replace } from "../dom.js";
import { typeTitle } from "../lease/words.js";

const EVENT_TYPES = [
  ["lease.create", "A lease is made"],
  ["lease.update", "A lease changes"],
  ["lease.delete", "A lease is deleted"],
  ["lease.event.before_start_lease", "A lease starts soon"],
  ["lease.event.start_lease", "A lease starts"],
  ["lease.event.before_end_lease", "A lease ends soon"],
  ["lease.event.end_lease", "A lease ends"],
  ["lease.start_delayed", "A start waits for hosts"],
  ["lease.not_started", "A lease has never started"],
];
const KNOWN = EVENT_TYPES.map(([value]) => value);
const SECRET_BYTES = 32;
// What notifications are sent to: formats of webhooks, and e-mail.
const EMAIL = "email";
const TARGETS = {
  cloudevents: "Your own service", slack: "Slack", matrix: "Matrix (hookshot)", teams: "Microsoft Teams (workflow)",
  [EMAIL]: "E-mail",
};
const FREQUENCIES = { immediate: "For each notification", hourly: "At most once an hour", daily: "At most once a day" };
const URL_HINTS = {
  cloudevents: "The address of your service. climate sends CloudEvents to it by POST, over https only.",
  slack: "The address of an incoming webhook of Slack.",
  matrix: "The address of a generic webhook of hookshot, the bridge of Matrix.",
  teams: "The address of a workflow that starts when a Teams webhook request is received.",
};

/** The address of a mailbox, or the URL of a webhook. */
export function receiver({ address, url }) {
  return address || url;
}

/** Whether climate may send notifications: the owner of an e-mail address must confirm it. */
export function isConfirmed({ kind, confirmed_at: at }) {
  return kind !== EMAIL || Boolean(at);
}

/** What a subscription sends to, in words. */
export function targetTitle(item) {
  if (item.kind !== EMAIL) return item.format === "cloudevents" ? "Webhook" : TARGETS[item.format];
  return { hourly: "E-mail, hourly", daily: "E-mail, daily" }[item.frequency] || "E-mail";
}

/** Open the form that creates a subscription, or changes one. */
export function subscriptionDialog(me, subscription, done) {
  const content = h("div", { class: "stack" });
  const submit = async (values, element) => {
    const { body, secret } = read(values, element, subscription);
    if (subscription) await api("PATCH", `/v2/subscriptions/${encodeURIComponent(subscription.id)}`, { body });
    else await post("/v2/subscriptions", body);
    done();
    if (secret) {
      showOnce(content, box, { label: "Secret of the signatures", secret, what: "secret",
        note: "Give this secret to your service. It checks with it that deliveries come from climate." });
    } else if (body.address && body.address !== (subscription || {}).address) {
      replace(content, h("p", {}, "climate sends a mail to ", name(body.address),
        ". It sends notifications as soon as the owner of the address has confirmed it there."),
        h("div", { class: "actions" }, button("Done", () => box.close(), { kind: "primary" })));
    } else {
      box.close();
      announce(subscription ? "The subscription has changed." : "The subscription is created.");
    }
  };
  const locate = (element, [key]) =>
    element.elements[{ event_types: "other_types", kind: "target", format: "target" }[key] || key];
  replace(content, form(formFields(me, subscription), subscription ? "Change" : "Create", submit, { locate }));
  const box = dialog({ title: subscription ? "Change the subscription" : "Create a subscription", content,
    wide: true });
}

function formFields(me, subscription) {
  const now = subscription || { kind: "webhook", format: "cloudevents", event_types: [] };
  const other = now.event_types.filter((item) => !KNOWN.includes(item));
  const boxes = EVENT_TYPES.map(([value, words]) =>
    check(words, h("input", { type: "checkbox", name: "event_types", value,
      checked: now.event_types.includes(value) })));
  const types = h("select", { name: "resource_type" }, h("option", { value: "" }, "Any"),
    (me.resource_types || []).map((item) => h("option", { value: item, selected: item === now.resource_type },
      typeTitle(item))));
  return [
    targetFields(me, subscription, now),
    h("fieldset", { class: "group stack" }, h("legend", {}, "Which notifications"),
      h("p", { class: "hint" }, "Without a choice, all."), h("div", { class: "fields" }, boxes),
      field("Other types", h("input", { name: "other_types", value: other.join(" "), spellcheck: "false" }),
        "Separated by spaces. A * at the end stands for any rest: lease.event.*")),
    h("div", { class: "fields" },
      field("Only this lease",
        h("input", { name: "lease_id", maxlength: 36, value: now.lease_id || "", spellcheck: "false" }),
        "The id of a lease. Empty: all leases."),
      field("Only leases with", types)),
    !subscription && me.allowed["notifications:get_all"]
      ? check("Notifications of all projects", h("input", { type: "checkbox", name: "all_projects" })) : null,
  ];
}

/** The fields that depend on what notifications are sent to. The kind of a subscription cannot change. */
function targetFields(me, subscription, now) {
  const isMail = now.kind === EMAIL;
  const mayMail = (me.features || {}).email && me.allowed["subscriptions:post_email"];
  const offered = Object.keys(TARGETS).filter((key) =>
    (key === EMAIL ? (subscription ? isMail : mayMail) : !isMail));
  const target = h("select", { name: "target" }, offered.map((key) =>
    h("option", { value: key, selected: key === (isMail ? EMAIL : now.format) }, TARGETS[key])));
  const rest = h("div", { class: "stack" });
  const draw = () => replace(rest, target.value === EMAIL ? mailFields(now) : webhookFields(target.value, now,
    subscription));
  target.addEventListener("change", draw);
  draw();
  return [field("Send to", target), rest];
}

function mailFields(now) {
  return [
    field("Address", h("input", { name: "address", type: "email", required: true, maxlength: 254,
      value: now.address || "" }), "climate sends a mail in which the owner of the address must confirm it."),
    h("div", { class: "fields" }, field("Mails", h("select", { name: "frequency" },
      Object.entries(FREQUENCIES).map(([value, words]) =>
        h("option", { value, selected: value === now.frequency }, words)))), zoneField(now)),
  ];
}

function webhookFields(format, now, subscription) {
  const secret = h("input", { name: "secret", autocomplete: "off", spellcheck: "false" });
  return [
    field("Receiver", h("input", { name: "url", type: "url", required: true, maxlength: 2000, value: now.url || "",
      placeholder: "https://" }), URL_HINTS[format]),
    format !== "cloudevents" ? zoneField(now)
      : subscription ? field("New secret", secret, "Empty: the secret stays.")
        : field("Secret", secret,
          "Empty: the console makes one and shows it once. Your own: whsec_ and the base64 of 24 to 64 bytes."),
  ];
}

function zoneField(now) {
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  return field("Time zone", h("input", { name: "time_zone", maxlength: 64, value: now.time_zone || own,
    spellcheck: "false" }), "Of the times in messages, such as Europe/Berlin.");
}

function read(values, element, subscription) {
  const chosen = [...element.querySelectorAll("input[name=event_types]:checked")].map((item) => item.value);
  const body = {
    event_types: [...chosen, ...values.other_types.split(/[\s,]+/).filter(Boolean)],
    lease_id: values.lease_id.trim() || null,
    resource_type: values.resource_type || null,
  };
  if (values.time_zone) body.time_zone = values.time_zone.trim();
  if (values.all_projects) body.all_projects = true;
  if (values.target === EMAIL) {
    Object.assign(body, { address: values.address.trim(), frequency: values.frequency });
    if (!subscription) body.kind = EMAIL;
    return { body, secret: "" };
  }
  Object.assign(body, { url: values.url.trim(), format: values.target });
  const isSigned = values.target === "cloudevents";
  const own = (values.secret || "").trim();
  const made = own || subscription || !isSigned ? "" : newSecret();
  if (own || made) body.secret = own || made;
  return { body, secret: made };
}

function newSecret() {
  const bytes = crypto.getRandomValues(new Uint8Array(SECRET_BYTES));
  return `whsec_${btoa(String.fromCharCode(...bytes))}`;
}

/** Show a secret in a dialog, once. */
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
