// Small pieces that the pages of leases share: badges, times, notes, meters.

import { h, icon, name } from "../dom.js";
import { day, moment, utc } from "../time.js";
import { state } from "./words.js";

/** A badge with an icon: never by colour alone. */
export function badge({ text, tone, symbol }) {
  return h("span", { class: `badge ${tone}`.trim() }, icon(symbol), text);
}

/** The badges of a lease: status, and "Degraded" if resources fail. */
export function badges(lease, now) {
  return [badge(state(lease, now)),
    lease.degraded ? badge({ text: "Degraded", tone: "care", symbol: "warning" }) : null];
}

/** A moment in the chosen zone with UTC below it. */
export function when(date, { short = false } = {}) {
  const value = new Date(date);
  return h("time", { datetime: value.toISOString(), class: "when" },
    short ? day(value) : moment(value), h("small", { class: "quiet" }, utc(value)));
}

/** A note with an icon; `tone`: "care", "bad" or "". */
export function note(tone, symbol, ...content) {
  return h("div", { class: `note ${tone}`.trim() }, icon(symbol), h("div", {}, content));
}

/** A bar that shows how much of a limit is used; the label says the same in words. */
export function meter(label, used, limit, unit = "") {
  const share = limit > 0 ? Math.min(1, used / limit) : 1;
  const fill = h("span");
  fill.style.width = `${share * 100}%`;
  const number = (value) => value.toLocaleString("en", { maximumFractionDigits: 1 });
  return h("div", { class: "limit" },
    h("p", {}, `${label}: `, h("b", {}, `${number(used)} of ${number(limit)}`), unit && ` ${unit}`),
    h("div", { class: used >= limit ? "meter full" : "meter", "aria-hidden": "true" }, fill));
}

/** A page that could not be shown. */
export function missing(title, text, ...links) {
  return h("div", { class: "page" }, h("h1", {}, title), h("p", {}, text), h("p", {}, links));
}

/** Text in a box with a button that copies it. */
export function copyable(text, label) {
  const status = h("span", { role: "status", class: "small quiet" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      status.textContent = "Copied";
    } catch {
      // Without TLS browsers give no clipboard: select the text, so that the user can copy it.
      getSelection().selectAllChildren(code);
      status.textContent = "Selected: press Ctrl+C";
    }
  };
  const code = h("code", {}, text);
  return h("div", { class: "copyable" }, code,
    h("button", { type: "button", class: "button square quiet", onclick: copy, "aria-label": `Copy ${label}` },
      icon("copy")),
    status);
}

/** A name of the user, or a text for none. */
export function nameOr(text, otherwise) {
  return text ? name(text) : otherwise;
}
