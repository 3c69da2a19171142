// The fields of one reservation: made from the schema of its type.

import { get, query } from "../api.js";
import { h, replace } from "../dom.js";
import { check, field } from "../forms.js";
import { typeTitle } from "../lease/words.js";
import { isSame } from "./expression.js";
import { filterField } from "./filter.js";
import { parameters, textOf, valueOf } from "./schema.js";

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

/**
 * The fields of a reservation.
 * @param {Map<string, object>} known the types of `resourceTypes()`
 * @param {string} type
 * @param {object} params the present values; empty for a new reservation
 * @param {{isChange?: boolean, changed?: function(): void}} [options]
 */
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

/** The value that a new reservation begins with. */
function first({ key, fallback, isRequired, kind, least }) {
  if (key === "min" || kind === FILTER) return "";
  if (fallback !== null) return fallback;
  return isRequired && kind === "integer" ? { memory_mb: 2048, disk_gb: 10 }[key] ?? Math.max(1, least ?? 1) : "";
}

/** Hosts have a least and a most amount; without the least all are needed. Pure. */
function complete(params) {
  if ("max" in params && !("min" in params)) return { ...params, min: params.max };
  return params;
}

/** The parameters that differ from `before`; null for those that are empty now. */
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

/** A choice of a file, whose text becomes the text of the control. */
function fileChoice({ label }, control, changed) {
  const status = h("span", { class: "hint", role: "status" });
  const choice = h("input",
    { type: "file", accept: ".yaml,.yml,.json,.template,.txt,text/plain", "aria-label": `${label} from a file` });
  choice.addEventListener("change", async () => {
    const [chosen] = choice.files;
    if (!chosen) return;
    if (chosen.size > 1 << 19) return replace(status, "The file has more than 512 KiB.");
    control.value = await chosen.text();
    replace(status, `${chosen.name} is read.`);
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
