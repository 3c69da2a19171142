// Contents of table cells and fact lists: moments, states, leases, meters.

import { h, icon, link, name, uid } from "../dom.js";
import { badges } from "../lease/parts.js";
import { duration, moment, serverNow, utc } from "../time.js";

/** A moment in the user's zone with UTC beside it; `text` without a date. */
export function when(text, absent = "never") {
  if (!text) return h("span", { class: "quiet" }, absent);
  const date = new Date(text);
  return h("time", { datetime: text, class: "moment" }, moment(date), " ", h("small", { class: "quiet" }, utc(date)));
}

/** How long ago a moment is: "12 s ago", "in 3 h". */
export function ago(text, absent = "never") {
  if (!text) return absent;
  const seconds = (serverNow() - new Date(text)) / 1000;
  return seconds < 0 ? `in ${duration(-seconds)}` : `${duration(seconds)} ago`;
}

const STATES = {
  ready: ["dot", "Ready"],
  preparing: ["half", "Getting ready"],
  off: ["power", "Off, bookable"],
  set_aside: ["warning", "Quarantined"],
  failing: ["warning", "Failing"],
};

/** The states of resources, for a filter: `[value, words]`. */
export const STATE_CHOICES = Object.entries(STATES).map(([value, [, words]]) => [value, words]);

/** The state of a resource as a glyph and words. */
export function stateOf(resource) {
  const [symbol, words] = STATES[stateKey(resource)] || ["ring", stateKey(resource)];
  return h("span", { class: "state", dataset: { state: stateKey(resource) } }, icon(symbol), words);
}

/** The key of a resource's state. */
export function stateKey({ state, reservable }) {
  return state || (reservable ? "ready" : "failing");
}

/** The status of a lease as badges. */
export function leaseStatus(lease) {
  return h("div", { class: "badges" }, badges(lease, serverNow()));
}

/** A link to a lease. */
export function leaseLink(id, label, key = "lease") {
  return link(`/console/leases/${encodeURIComponent(id)}`, name(label || id), { dataset: { focus: key } });
}

/** A link to a resource. */
export function resourceLink(id, label, key = "resource") {
  return link(`/console/resources/${encodeURIComponent(id)}`, name(label || id), { dataset: { focus: key } });
}

const number = new Intl.NumberFormat("en");

/** A number as people write it: "3,410", with at most `digits` decimals. */
export function count(value, digits = 1) {
  const scale = 10 ** digits;
  return number.format(Math.round(value * scale) / scale);
}

/** "1 host", "3 hosts". */
export function plural(amount, noun, several = `${noun}s`) {
  return `${count(amount)} ${amount === 1 ? noun : several}`;
}

/** A labelled meter of `used` of `limit`; without a limit only the number. */
export function meter(label, used, limit, { unit = "", left = true } = {}) {
  const id = uid("meter");
  if (limit === null || limit === undefined) {
    return h("div", { class: "metered" }, h("p", { class: "bar-label" }, h("span", {}, label),
      h("b", {}, count(used), unit)),
      h("p", { class: "hint" }, "No limit."));
  }
  const share = limit > 0 ? Math.min(1, used / limit) : 1;
  const fill = h("span");
  fill.style.width = `${share * 100}%`;
  const rest = Math.max(0, limit - used);
  return h("div", { class: "metered" },
    h("p", { class: "bar-label", id }, h("span", {}, label), " ",
      h("b", {}, `${count(used)} of ${count(limit)}${unit}`)),
    h("div", { class: used >= limit ? "meter full" : "meter", role: "meter", "aria-labelledby": id, "aria-valuemin": 0,
      "aria-valuemax": Math.max(limit, used), "aria-valuenow": used,
      "aria-valuetext": `${count(used)} of ${count(limit)}${unit}` }, fill),
    left ? h("p", { class: "hint" }, used > limit ? `${count(used - limit)}${unit} above the limit.`
      : `${count(rest)}${unit} left.`) : null);
}

/** A list of facts: `[label, content]`; those without content are left out. */
export function facts(pairs) {
  return h("dl", { class: "pairs" }, pairs.filter((pair) => pair && pair[1] !== null && pair[1] !== undefined
    && pair[1] !== "")
    .map(([label, content]) => [h("dt", {}, label), h("dd", {}, content)]));
}
