// The fields of a request: reservations from the schemas of their types, the window, reminders.

import { get } from "../api.js";
import { check, field, h, momentField, plain, replace, uid } from "../dom.js";
import { filterField, isSame } from "../tables/properties.js";
import { duration, iso, parseDuration, serverNow } from "../time.js";
import { label, typeTitle } from "./words.js";

const FILTER = "property-expression";
let types = null;

/** The enabled resource types by name, read once. */
export function resourceTypes() {
  types ??= get("/v2/resource-types").then((body) =>
    new Map((body.resource_types || body).map((type) => [type.name, type])));
  types.catch(() => { types = null; });
  return types;
}

/** The name of a type for people: ours, or that of its plug-in. */
export function titleOf(known, type) {
  const title = typeTitle(type);
  return title === type ? known.get(type)?.title || type : title;
}

const suggestions = new Map();

/** Names and values of the properties of a type: `[{name, values}]`, read once. */
export function propertiesOf(type) {
  if (!suggestions.has(type)) {
    const path = `/v2/resource-types/${encodeURIComponent(type)}/properties`;
    const reading = get(path).then((body) => body.properties || body);
    reading.catch(() => suggestions.delete(type));
    suggestions.set(type, reading);
  }
  return suggestions.get(type);
}

export function reservationFields(known, type, params = {}, { isChange = false, changed = () => {} } = {}) {
  const { schema = { properties: {} }, description = "", fixed = [] } = known.get(type) || {};
  const unit = titleOf(known, type);
  const list = parameters(schema).filter(({ key }) => !isChange || !fixed.includes(key));
  const inputs = new Map();
  const present = (parameter) => {
    if (parameter.key === "min" && params.min === params.max) return "";
    return params[parameter.key] ?? (isChange ? null : first(parameter));
  };
  const place = (parameter) => {
    const control = makeControl(parameter, present(parameter), type, changed);
    inputs.set(parameter.key, { parameter, ...control });
    return control.element;
  };
  const isShown = (parameter) => !parameter.isMinor || (parameter.kind === FILTER && hasValue(params[parameter.key]));
  const major = list.filter(isShown).map(place);
  const minor = list.filter((parameter) => !isShown(parameter) && (parameter.kind !== FILTER)).map(place);
  const element = h("fieldset", { class: "group", "data-type": type }, h("legend", {}, unit),
    description && !isChange ? h("p", { class: "hint lead" }, description) : null,
    h("div", { class: "fields" }, major),
    minor.length ? h("details", {}, h("summary", {}, "More settings"), h("div", { class: "fields" }, minor)) : null);
  const read = () => complete(Object.fromEntries([...inputs].map(([key, input]) => [key, input.read()])
    .filter(([, value]) => value !== undefined)));
  return {
    element, type, read,
    changed: () => different(read(), params, inputs),
    setAmount: (amount) => setAmount(inputs, amount),
    set: (key, value) => inputs.get(key)?.set(value),
    locate: ([key]) => inputs.get(key)?.controls()[0],
    has: (key) => inputs.has(key),
  };
}

function hasValue(value) {
  return Array.isArray(value) ? value.length > 0 : Boolean(value);
}

function first({ key, fallback, isRequired, kind, least }) {
  if (key === "min" || kind === FILTER) return "";
  if (fallback !== null) return fallback;
  return isRequired && kind === "integer" ? { memory_mb: 2048, disk_gb: 10 }[key] ?? Math.max(1, least ?? 1) : "";
}

function complete(params) {
  if ("max" in params && !("min" in params)) return { ...params, min: params.max };
  return params;
}

function different(now, before, inputs) {
  const body = {};
  for (const [key, { parameter }] of inputs) {
    const [value, old] = [now[key], before[key]];
    const isEqual = parameter.kind === FILTER ? isSame(value, old) : JSON.stringify(value) === JSON.stringify(old);
    if (isEqual) continue;
    if (value !== undefined) body[key] = value;
    else if (![null, undefined, ""].includes(old) && parameter.isNullable) body[key] = null;
  }
  return body;
}

function setAmount(inputs, amount) {
  const key = ["max", "amount"].find((name) => inputs.has(name));
  if (!key) return false;
  inputs.get(key).set(amount);
  const least = inputs.get("min");
  if (least && Number(least.read()) > amount) least.set("");
  return true;
}

function makeControl(parameter, value, type, changed) {
  if (parameter.kind === FILTER) {
    const filter = filterField(parameter.label, { value: value || "", properties: () => propertiesOf(type), changed });
    return { element: filter.element, read: filter.read, set: filter.set, controls: filter.controls };
  }
  const control = input(parameter);
  const set = (next) => {
    if (parameter.kind === "flag") control.checked = next === true;
    else control.value = textOf(parameter, next);
  };
  set(value);
  control.addEventListener("input", () => judge(parameter, control));
  const read = () => (parameter.kind === "flag" ? control.checked : readText(parameter, control));
  return { element: labelled(parameter, control, changed), read, set, controls: () => [control] };
}

function input({ key, kind, isRequired, choices, least, most }) {
  const common = { "data-param": key, required: isRequired };
  if (kind === "choice") return h("select", common, choices.map(([value, text]) => h("option", { value }, text)));
  if (kind === "flag") return h("input", { "data-param": key, type: "checkbox" });
  const rows = kind === "file" ? 10 : 3;
  if (["json", "file", "list"].includes(kind)) return h("textarea", { ...common, spellcheck: "false", rows });
  const step = { integer: 1, number: "any" }[kind];
  if (step) return h("input", { ...common, type: "number", step, min: least, max: most });
  return h("input", { ...common, type: "text", maxlength: 255, autocomplete: "off" });
}

function labelled(parameter, control, changed) {
  if (parameter.kind === "flag") return check(parameter.label, control, parameter.hint);
  const isWide = ["json", "file", "list"].includes(parameter.kind);
  const element = field(parameter.label, control, parameter.hint, { whole: isWide });
  if (parameter.kind === "file") element.append(fileChoice(parameter, control, changed));
  return element;
}

function fileChoice({ label }, control, changed) {
  const status = h("span", { class: "hint", role: "status" });
  const choice = h("input",
    { type: "file", accept: ".yaml,.yml,.json,.template,.txt,text/plain", "aria-label": `${label} from a file` });
  choice.addEventListener("change", async () => {
    const [chosen] = choice.files;
    if (!chosen) return;
    if (chosen.size > 1 << 19) return replace(status, "The file has more than 512 KiB.");
    control.value = await chosen.text();
    replace(status, `${plain(chosen.name)} is read.`);
    changed();
  });
  return h("div", { class: "file" }, choice, status);
}

function readText(parameter, control) {
  try {
    return valueOf(parameter, control.value);
  } catch {
    return undefined;
  }
}

function judge(parameter, control) {
  if (parameter.kind !== "json") return;
  try {
    valueOf(parameter, control.value);
    control.setCustomValidity("");
  } catch {
    control.setCustomValidity("This is not JSON.");
  }
}

// Fields for the parameters of a resource type, from the JSON schema of the API.

const AMOUNTS = ["max", "min", "amount"];
const EXPRESSION = "property-expression"; // format of the schema
const MAIN_FILTER = "resource_properties"; // shown at once, the other filters only if they are set

const CHOICES = {
  affinity: { "": "Anywhere", true: "On one host", false: "On different hosts" },
  on_start: { create: "Create", nothing: "Only reserve" },
  on_end: { delete: "Delete", keep: "Keep", suspend: "Suspend", snapshot: "Save an image, then delete" },
  before_end: { default: "As configured", snapshot: "Save an image of each server", "": "Nothing" },
};

function parameters(schema) {
  const entries = Object.entries(schema.properties || {}).filter(([, part]) => !part.readOnly && !isFixed(part));
  const required = new Set(schema.required || []);
  const keys = entries.map(([key]) => key);
  const filters = entries.filter(([, part]) => part.format === EXPRESSION).map(([key]) => key);
  const filter = filters.includes(MAIN_FILTER) ? MAIN_FILTER : filters[0];
  const rank = ({ key }) => (AMOUNTS.includes(key) ? AMOUNTS.indexOf(key) : AMOUNTS.length);
  const list = entries.map(([key, part]) => {
    const kind = kindOf(part);
    const isLeast = key === "min" && keys.includes("max");
    return {
      key, kind, label: key === filter ? "Which ones" : part.title || label(key),
      hint: isLeast ? "Empty: as many as at most." : part.description || "",
      isRequired: required.has(key) && !isLeast,
      isMinor: kind === EXPRESSION ? key !== filter : !required.has(key) && ![...AMOUNTS, "template"].includes(key),
      isNullable: typesOf(part).includes("null"), choices: kind === "choice" ? choicesOf(key, part) : [],
      enum: part.enum || [], fallback: part.default ?? null,
      least: part.minimum ?? null, most: part.maximum ?? null,
    };
  });
  return list.sort((one, other) => rank(one) - rank(other));
}

/** Whether a parameter can have only one value. */
function isFixed(part) {
  return part.enum?.length === 1;
}

function typesOf(part) {
  return [part.type].flat().filter(Boolean);
}

function kindOf(part) {
  const types = typesOf(part).filter((type) => type !== "null");
  if (part.format === EXPRESSION) return EXPRESSION;
  if (part.format === "yaml") return "file";
  if (part.enum) return "choice";
  if (types.includes("integer")) return "integer";
  if (types.includes("number")) return "number";
  if (types.includes("boolean")) return "flag";
  if (types.includes("array") && part.items?.type === "string") return "list";
  if (types.length === 1 && types[0] === "string") return "text";
  return "json";
}

function choicesOf(key, part) {
  const words = CHOICES[key] || {};
  const values = part.enum.filter((value) => value !== null).map(String);
  const hasNone = part.enum.includes(null) && (part.default ?? null) === null && !values.includes("");
  return (hasNone ? ["", ...values] : values).map((value) => [value, words[value] || value || "As usual"]);
}

function valueOf({ kind, enum: values }, text) {
  const content = text.trim();
  if (kind === "choice") return values.find((value) => value !== null && String(value) === content);
  if (content === "") return undefined;
  if (kind === "integer" || kind === "number") return Number(content);
  if (kind === "list") return content.split(/[\s,]+/).filter(Boolean);
  if (kind === "json") return JSON.parse(content);
  if (kind === "file") return content.startsWith("{") ? JSON.parse(content) : content;
  return content;
}

function textOf({ kind }, value) {
  if (value === null || value === undefined) return "";
  if (kind === "list") return Array.isArray(value) ? value.join("\n") : String(value);
  return typeof value === "object" ? JSON.stringify(value, null, 2) : String(value);
}

// When a new lease runs

const HOUR = 3600_000;

/** The part of the body of a lease that says when it runs. */
export function windowBody({ start, date, until, seconds, end, endBy, whenReady, queue }) {
  const body = whenReady ? { start_when: "ready" } : {};
  if (start === "asap") {
    if (!seconds || !(queue || endBy)) return null;
    const limit = queue ? { wait: waitBody(queue) } : { end_by: iso(endBy) };
    return { ...body, start: "asap", duration: seconds, ...limit };
  }
  if (start === "at" && !date) return null;
  body.start = start === "now" ? "now" : iso(date);
  if (until === "end") return end ? { ...body, end: iso(end) } : null;
  return seconds ? { ...body, duration: seconds } : null;
}

/** What the API calls `wait`. */
export function waitBody({ until, priority }) {
  return { ...(until ? { until: iso(until) } : {}), priority };
}

/** The fields of a lease in the wait list. */
export function waitFields({ until, priority = 0, changed, required = false }) {
  const time = momentField("Give up at", { date: until, required, name: "until", changed,
    hint: `Then a lease without a booking leaves the wait list.${required ? "" : " Empty: it waits on."}` });
  const select = h("select", { name: "priority", value: String(priority) },
    [...Array(10).keys()].map((level) => h("option", { value: level }, level)));
  const elements = [time.element, field("Priority", select, "9 comes first.")];
  const read = () => ({ until: time.read(), priority: Number(select.value) });
  return { elements, read, locate: { until: time.input, priority: select } };
}

export function windowTimes({ start, date, until, seconds, end }, now) {
  const from = start === "at" && date ? date : now;
  const to = until === "end" && start !== "asap" && end ? end : new Date(from.getTime() + (seconds || 0) * 1000);
  return { start: from, end: to };
}

/** The control of when. */
export function windowFields({ prefilled = {}, mayWait, changed }) {
  const now = serverNow();
  const kinds = radios("Start", "start", [["now", "Now"], ["asap", "As soon as possible"], ["at", "At a time"]],
    prefilled.start || "now", () => shown());
  const untils = radios("End", "until", [["duration", "For a duration"], ["end", "Until a time"]],
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
  const queue = h("input", { type: "checkbox", name: "queue", checked: Boolean(prefilled.queue) });
  const queueField = check("Wait until enough is free", queue, "The lease gets a place in the wait list.");
  const wait = waitFields({ ...prefilled.queue, changed });
  queue.addEventListener("change", () => shown());
  lasts.addEventListener("input", () => lasts.setCustomValidity(
    !lasts.value.trim() || parseDuration(lasts.value) ? ""
      : "This is not a duration, such as 8 h, 90 min or 2 d 4 h."));

  const read = () => ({
    start: kinds.value(), date: start.read(), until: untils.value(), seconds: parseDuration(lasts.value),
    duration: lasts.value, end: end.read(), endBy: endBy.read(), whenReady: mayWait() && ready.checked,
    queue: queue.checked && wait.read(),
  });
  const element = h("fieldset", { class: "group" }, h("legend", {}, "When"),
    h("div", { class: "fields" }, kinds.element, untils.element, start.element, end.element, lastsField,
      queueField, endBy.element, wait.elements, readyField));
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
    toggle(queueField, kind === "asap");
    toggle(endBy.element, kind === "asap" && !queue.checked);
    for (const part of wait.elements) toggle(part, kind === "asap" && queue.checked);
    toggle(readyField, mayWait());
  }
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
  const enqueue = (seconds) => {
    kinds.set("asap");
    lasts.value = exactDuration(seconds);
    lasts.setCustomValidity("");
    queue.checked = true;
    shown();
  };
  shown();
  return { element, read, set, enqueue, shown, locate: ([key, part]) =>
    ({ start: start.input, end: end.input, duration: lasts, end_by: endBy.input, wait: wait.locate[part] })[key] };
}

/** A duration that `parseDuration` reads back without loss: "7 h 59 min 49 s". */
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

export function reminderBody({ before, events }, { start, end }, isAsap) {
  if (isAsap) return {};
  const body = {};
  const seconds = before && parseDuration(before);
  if (seconds && end - seconds * 1000 > start) body.before_end = iso(new Date(end.getTime() - seconds * 1000));
  const list = events.filter(({ type, at }) => type && at).map(({ type, at }) => ({ type, at: iso(at) }));
  if (list.length) body.events = list;
  return body;
}
