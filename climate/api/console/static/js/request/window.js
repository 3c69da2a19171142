// When a new lease runs: now, as soon as possible, or at a time; for a duration or until an end.

import { h, uid } from "../dom.js";
import { check, field } from "../forms.js";
import { momentField } from "../moment.js";
import { duration, iso, parseDuration, serverNow } from "../time.js";

const HOUR = 3600_000;

/**
 * The part of the body of a lease that says when it runs. Pure.
 * @param {{start: string, date: ?Date, until: string, seconds: ?number, end: ?Date, endBy: ?Date, whenReady: boolean}}
 *   choice
 * @returns {object|null} null while something is missing
 */
export function windowBody({ start, date, until, seconds, end, endBy, whenReady }) {
  const body = whenReady ? { start_when: "ready" } : {};
  if (start === "asap") {
    if (!seconds || !endBy) return null;
    return { ...body, start: "asap", duration: seconds, end_by: iso(endBy) };
  }
  if (start === "at" && !date) return null;
  body.start = start === "now" ? "now" : iso(date);
  if (until === "end") return end ? { ...body, end: iso(end) } : null;
  return seconds ? { ...body, duration: seconds } : null;
}

/** The times that a choice means: `{start, end}`; of "now" and "asap" from the present. Pure. */
export function windowTimes({ start, date, until, seconds, end }, now) {
  const from = start === "at" && date ? date : now;
  const to = until === "end" && start !== "asap" && end ? end : new Date(from.getTime() + (seconds || 0) * 1000);
  return { start: from, end: to };
}

/** The control of when. `prefilled`: `{start, end, date, seconds}` of the address or of the draft. */
export function windowFields({ prefilled = {}, mayWait, changed }) {
  const now = serverNow();
  const kinds = radios("Start", "start", [["now", "Now"], ["asap", "As soon as possible"], ["at", "At a time"]],
    prefilled.start || "now", () => shown());
  const untils = radios("Until", "until", [["duration", "For a duration"], ["end", "Until a time"]],
    prefilled.until || "duration", () => shown());
  const start = momentField("Start",
    { date: prefilled.date || new Date(Math.ceil(now / HOUR) * HOUR + HOUR), required: true, name: "start", changed });
  const end = momentField("End",
    { date: prefilled.end || new Date(Math.ceil(now / HOUR) * HOUR + 4 * HOUR), required: true, name: "end", changed });
  const endBy = momentField("End at the latest",
    { date: prefilled.endBy || new Date(now.getTime() + 7 * 24 * HOUR), required: true, name: "end_by", changed });
  const lasts = h("input",
    { name: "duration", required: true, value: prefilled.duration || "8 h", autocomplete: "off", inputmode: "text" });
  const lastsField = field("Duration", lasts, "Such as 8 h, 90 min or 2 d 4 h.");
  const ready = h("input", { type: "checkbox", name: "start_when", checked: Boolean(prefilled.whenReady) });
  const readyField = check("Start only when all hosts are ready", ready,
    "The lease starts as soon as climate has prepared its hosts. Its end stays.");
  lasts.addEventListener("input", () => lasts.setCustomValidity(
    !lasts.value.trim() || parseDuration(lasts.value) ? ""
      : "This is not a duration, such as 8 h, 90 min or 2 d 4 h."));

  const read = () => ({
    start: kinds.value(), date: start.read(), until: untils.value(), seconds: parseDuration(lasts.value),
    duration: lasts.value, end: end.read(), endBy: endBy.read(), whenReady: mayWait() && ready.checked,
  });
  const element = h("fieldset", { class: "group" }, h("legend", {}, "When"),
    h("div", { class: "fields" }, kinds.element, untils.element, start.element, end.element, lastsField, endBy.element,
      readyField));
  const toggle = (part, isShown) => {
    part.hidden = !isShown;
    for (const control of part.querySelectorAll("input, select")) control.disabled = !isShown;
  };
  function shown() {
    const [kind, until] = [kinds.value(), untils.value()];
    toggle(start.element, kind === "at");
    toggle(untils.element, kind !== "asap");
    toggle(end.element, kind !== "asap" && until === "end");
    toggle(lastsField, kind === "asap" || until === "duration");
    toggle(endBy.element, kind === "asap");
    toggle(readyField, mayWait());
  }
  /** Take the times of a free window or of an alternative. */
  const set = (from, to) => {
    const isNow = kinds.value() === "now" && from - serverNow() < 60_000;
    if (!isNow) {
      kinds.set("at");
      start.set(from);
    }
    if (untils.value() === "end") end.set(to);
    else {
      lasts.value = exactDuration(Math.round((to - from) / 1000));
      lasts.setCustomValidity("");
    }
    shown();
  };
  shown();
  return { element, read, set, shown, locate: ([key]) =>
    ({ start: start.input, end: end.input, duration: lasts, end_by: endBy.input })[key] };
}

/** A duration that `parseDuration` reads back without loss: "7 h 59 min 49 s". Pure. */
export function exactDuration(seconds) {
  const [hours, minutes, rest] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  const parts = [[hours, "h"], [minutes, "min"], [rest, "s"]].filter(([amount]) => amount);
  return parts.map((part) => part.join(" ")).join(" ") || duration(0);
}

function radios(legend, group, choices, value, changed) {
  const id = uid(group);
  const inputs = choices.map(([key]) =>
    h("input", { type: "radio", name: id, value: key, checked: key === value, "data-choice": `${group}-${key}` }));
  const element = h("fieldset", { class: "field choice" }, h("legend", { class: "label" }, legend),
    h("div", { class: "segments" }, inputs.map((input, index) => h("label", {}, input, choices[index][1]))));
  element.addEventListener("change", changed);
  return {
    element, value: () => inputs.find((input) => input.checked)?.value,
    set: (key) => { for (const input of inputs) input.checked = input.value === key; },
  };
}

/** Reminders: before the end, and of one's own. */
export function reminderFields({ prefilled = {}, changed }) {
  const before = h("input",
    { name: "before_end", value: prefilled.before || "", autocomplete: "off", placeholder: "as configured" });
  before.addEventListener("input", () => before.setCustomValidity(
    !before.value.trim() || parseDuration(before.value) ? "" : "This is not a duration, such as 1 h."));
  const list = h("div", { class: "stack" });
  const rows = new Set();
  const add = (event = {}) => {
    const row = reminderRow(event, changed, () => { row.element.remove(); rows.delete(row); changed(); });
    rows.add(row);
    list.append(row.element);
    return row.locate.type;
  };
  for (const event of prefilled.events || []) add(event);
  const more = h("button", { type: "button", class: "button", onclick: () => add().focus() },
    "Add a reminder of your own");
  const element = h("details", { class: "card", open: rows.size > 0 }, h("summary", {}, "Reminders"),
    h("div", { class: "fields" },
      field("Before the end", before, "A duration such as 1 h. Empty: as the operator has configured.")), list, more);
  return {
    element,
    read: () => ({ before: before.value.trim(), events: [...rows].map((row) => row.read()) }),
    locate: ([key, index, part]) => (key === "before_end" ? before : [...rows][index]?.locate[part || "type"]),
  };
}

function reminderRow({ type = "", date = null }, changed, remove) {
  const title = "Lower-case letters, digits, _ and .";
  const name = h("input",
    { value: type, maxlength: 64, required: true, pattern: "[a-z][a-z0-9_.]*", title, "data-reminder": "type" });
  const at = momentField("At", { date, required: true, changed });
  const element = h("div", { class: "fields" }, field("Name of the reminder", name, `${title}`), at.element,
    h("button", { type: "button", class: "button", onclick: remove }, "Remove the reminder"));
  return { element, read: () => ({ type: name.value, at: at.read() }), locate: { type: name, at: at.input } };
}

/** The part of the body for reminders. `times` of `windowTimes`; with asap there are none. Pure. */
export function reminderBody({ before, events }, { start, end }, isAsap) {
  if (isAsap) return {};
  const body = {};
  const seconds = before && parseDuration(before);
  if (seconds && end - seconds * 1000 > start) body.before_end = iso(new Date(end.getTime() - seconds * 1000));
  const list = events.filter(({ type, at }) => type && at).map(({ type, at }) => ({ type, at: iso(at) }));
  if (list.length) body.events = list;
  return body;
}
