// Properties: expressions as text and as conditions, and the fields that filter by them.

import { button, clearErrors, field, h, icon, name, plain, replace, setError, uid } from "../dom.js";
import { parsed } from "../lease/words.js";
import { count } from "./table.js";

const OPERATORS = { "=": "==", "==": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=" };
const TOKEN = /\s*(?:"((?:[^"\\]|\\.)*)"|(==|!=|<=|>=|[=<>(),])|([^\s=<>!(),"]+)|(\S))/y;

/** The text is not an expression; the message says what is wrong and where. */
class ExpressionError extends Error {}

/**
 * Read an expression.
 * @param {string} text words such as `vcpus >= 64 and not rack = r1`, or the JSON of the API
 * @returns {Array|null} null if the text is empty
 */
export function parseExpression(text) {
  const clean = text.trim();
  if (!clean) return null;
  if (clean.startsWith("[")) return fromJson(clean);
  const reader = new Reader(clean);
  const expression = either(reader);
  if (reader.token) throw new ExpressionError(
    `"${reader.token.text}" is not expected here. Join conditions with "and" or "or".`);
  return expression;
}

/** The expression in words. `parseExpression` reads them again. */
export function expressionText(expression) {
  return expression && expression.length ? words(expression, 0) : "";
}

function fromJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new ExpressionError("The text begins with [ but is not JSON.");
  }
}

class Reader {
  constructor(text) {
    this.tokens = [...tokens(text)];
    this.at = 0;
  }

  get token() {
    return this.tokens[this.at];
  }

  is(...texts) {
    return Boolean(this.token) && !this.token.quoted && texts.includes(this.token.text.toLowerCase());
  }

  take(text) {
    if (!this.is(text)) return false;
    this.at += 1;
    return true;
  }

  next(what) {
    const token = this.token;
    if (!token || (!token.quoted && "()=<>,".includes(token.text[0]))) {
      throw new ExpressionError(`${what} is missing ${token ? `before "${token.text}"` : "at the end"}.`);
    }
    this.at += 1;
    return token;
  }
}

function* tokens(text) {
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.trimEnd().length) {
    const [, quoted, sign, word, other] = TOKEN.exec(text);
    if (other) throw new ExpressionError(
      `"${other}" is not expected. Put names and values with special signs into double quotes.`);
    if (quoted !== undefined) yield { text: quoted.replace(/\\(.)/g, "$1"), quoted: true };
    else yield { text: sign ?? word, quoted: false };
  }
}

function either(reader) {
  return joined(reader, "or", both);
}

function both(reader) {
  return joined(reader, "and", single);
}

function joined(reader, word, part) {
  const parts = [part(reader)];
  while (reader.take(word)) parts.push(part(reader));
  return parts.length > 1 ? [word, ...parts] : parts[0];
}

function single(reader) {
  if (reader.take("not")) return ["not", single(reader)];
  if (reader.take("(")) {
    const inner = either(reader);
    if (!reader.take(")")) throw new ExpressionError('A ")" is missing.');
    return inner;
  }
  const property = `$${reader.next("The name of a property").text}`;
  if (reader.take("in")) return ["in", property, ...list(reader)];
  const operator = reader.token && !reader.token.quoted && OPERATORS[reader.token.text];
  if (!operator) {
    throw new ExpressionError(
      `After ${property.slice(1)}, write one of = != < <= > >= in, and a value: ${property.slice(1)} >= 4.`);
  }
  reader.at += 1;
  return [operator, property, value(reader.next("The value"))];
}

function list(reader) {
  if (!reader.take("(")) return [value(reader.next("The value"))];
  const values = [];
  do values.push(value(reader.next("The value")));
  while (reader.take(","));
  if (!reader.take(")")) throw new ExpressionError('A ")" is missing.');
  return values;
}

function value({ text, quoted }) {
  return !quoted && /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text;
}

function words(expression, level) {
  const [operator, ...rest] = expression;
  if (operator === "and" || operator === "or") {
    if (rest.length === 1) return words(rest[0], level);
    const own = operator === "or" ? 1 : 2;
    const text = rest.map((part) => words(part, own)).join(` ${operator} `);
    return level > own ? `(${text})` : text;
  }
  if (operator === "not") return `not ${words(rest[0], 3)}`;
  const property = quotedName(String(rest[0]).replace(/^\$/, ""));
  if (operator === "in") return `${property} in (${rest.slice(1).flat().map(quotedValue).join(", ")})`;
  return `${property} ${operator === "==" ? "=" : operator} ${quotedValue(rest[1])}`;
}

const KEYWORDS = /^(and|or|not|in)$/i;

function quotedName(text) {
  return /^[^\s=<>!(),"]+$/.test(text) && !KEYWORDS.test(text) ? text : quote(text);
}

function quotedValue(item) {
  return typeof item === "string" ? quotedName(item) : String(item);
}

function quote(text) {
  return `"${text.replace(/[\\"]/g, "\\$&")}"`;
}

// Property expressions

/** The comparisons of the form: `[operator, words]`. */
const COMPARISONS = [["==", "="], ["!=", "is not"], [">=", ">="], ["<=", "<="], [">", ">"], ["<", "<"],
  ["in", "one of"]];

const KNOWN = new Set([...COMPARISONS.map(([operator]) => operator), "="]);

/**
 * The terms of an expression that the form can show: a comparison, or several joined by "and".
 * @param {string|Array} expression JSON
 * @returns {{property: string, operator: string, value: string}[]|null} null: write it as text
 */
function toTerms(expression) {
  if (expression === "" || expression === null || expression === undefined) return [];
  const parts = parsed(expression);
  if (!Array.isArray(parts)) return null;
  if (!parts.length) return [];
  const list = parts[0] === "and" ? parts.slice(1) : [parts];
  const terms = list.map(term);
  return terms.includes(null) ? null : terms;
}

function term(part) {
  if (!Array.isArray(part) || !KNOWN.has(part[0])) return null;
  const [operator, property, ...values] = part;
  if (typeof property !== "string" || !property.startsWith("$")) return null;
  const flat = values.flat();
  if (!flat.length || flat.some((value) => typeof value === "object")) return null;
  if (operator !== "in" && flat.length > 1) return null;
  return { property: property.slice(1), operator: operator === "=" ? "==" : operator, value: flat.join(", ") };
}

/** The expression of terms, as an array; `""` without a complete term. */
function toExpression(terms) {
  const parts = terms.filter(({ property, value }) => property && value !== "").map(comparison);
  if (!parts.length) return "";
  return parts.length === 1 ? parts[0] : ["and", ...parts];
}

function comparison({ property, operator, value }) {
  const values = operator === "in" ? value.split(",") : [value];
  return [operator, `$${property}`, ...values.map((item) => scalar(item.trim()))];
}

/** A number if the text is one as people write it, else the text. */
function scalar(text) {
  return /^-?(0|[1-9]\d{0,14})(\.\d+)?$/.test(text) ? Number(text) : text;
}

/** An expression as JSON; `""` for all that match everything. */
function normal(text) {
  const json = JSON.stringify(parsed(text) ?? (text || ""));
  return json === "[]" ? '""' : json;
}

/** Whether two expressions are the same. */
export function isSame(one, other) {
  return normal(one) === normal(other);
}

// The builder of a property filter

/**
 * @param {string} label
 * @param {{value: string|Array, properties: function(): Promise<object[]>, changed?: function(): void}} options
 *   `properties` gives the suggestions: `[{name, values, numeric}]`
 * @returns {{element: HTMLElement, read: function(), set: function(string|Array), controls: function()}}
 */
export function filterField(label, { value = "", properties, changed = () => {} }) {
  const names = h("datalist", { id: uid("properties") });
  const known = new Map();
  const lines = h("div", { class: "terms" });
  const text = h("textarea", { "aria-label": `${label} as an expression`, spellcheck: "false", rows: 3 });
  const mode = button("Write an expression", () => toggle(), { kind: "link" });
  const add = button([icon("plus"), "Add a condition"], () => { line({}).focus(); }, { kind: "quiet" });
  const element = h("div", { class: "field whole filter" },
    h("fieldset", {}, h("legend", { class: "label" }, label), lines, text),
    h("div", { class: "actions" }, add, mode), names);
  let isText = false;

  function line({ property = "", operator = "==", value: content = "" }) {
    const values = h("datalist", { id: uid("values") });
    const key = h("input",
      { value: property, list: names.id, placeholder: "property", "aria-label": "Property", "data-term": "property" });
    const compare = h("select", { value: operator, "aria-label": "Comparison", "data-term": "operator" },
      COMPARISONS.map(([code, words]) => h("option", { value: code }, words)));
    const input = h("input",
      { value: content, list: values.id, placeholder: "value", "aria-label": "Value", "data-term": "value" });
    const row = h("div", { class: "term" }, key, compare, input,
      button(icon("close"), () => { row.remove(); add.focus(); changed(); },
        { kind: "square quiet", "aria-label": "Remove the condition" }), values);
    const suggest = () => {
      const items = known.get(key.value)?.values || [];
      replace(values, items.map((item) => h("option", { value: item })));
    };
    key.addEventListener("input", suggest);
    key.addEventListener("change", () => {
      if (known.get(key.value)?.numeric && !input.value) compare.value = ">=";
    });
    input.addEventListener("focus", suggest);
    lines.append(row);
    return key;
  }

  function toggle() {
    if (isText) {
      const terms = toTerms(text.value.trim());
      if (!terms) return refuse();
      set(text.value.trim());
    } else {
      showText(read());
      text.focus();
    }
    changed();
  }

  function refuse() {
    text.setCustomValidity("Only comparisons joined by \"and\" can be shown as conditions.");
    text.reportValidity();
    text.setCustomValidity("");
  }

  function showText(content) {
    isText = true;
    text.value = typeof content === "string" ? content : JSON.stringify(content);
    show();
  }

  function show() {
    lines.hidden = isText;
    add.hidden = isText;
    text.hidden = !isText;
    mode.textContent = isText ? "Use conditions" : "Write an expression";
  }

  function set(content) {
    const terms = toTerms(content);
    replace(lines);
    text.setCustomValidity("");
    if (!terms) return showText(content);
    isText = false;
    terms.forEach(line);
    show();
  }

  function read() {
    if (!isText) {
      return toExpression([...lines.children].map((row) => Object.fromEntries(
        [...row.querySelectorAll("[data-term]")].map((control) => [control.dataset.term, control.value]))));
    }
    const content = text.value.trim();
    return content ? parsed(content) ?? content : "";
  }

  text.addEventListener("input", () => text.setCustomValidity(
    !text.value.trim() || parsed(text.value) ? "" : "This is not JSON, such as [\">=\", \"$vcpus\", 8]."));
  properties().then((list) => {
    for (const property of list) known.set(property.name, property);
    replace(names, list.map((property) => h("option", { value: property.name })));
  }).catch(() => {}); // Suggestions only help.
  set(value);
  return { element, read, set, controls: () => (isText ? [text] : [...lines.querySelectorAll("[data-term]")]) };
}

// Properties of resources

const AMOUNTS = {
  vcpus: (value) => `${count(Number(value))} vCPUs`,
  memory_mb: (value) => `${count(value / 1024)} GiB memory`,
  local_gb: (value) => `${count(Number(value))} GB disk`,
  gigabytes: (value) => `${count(Number(value))} GB`,
};
const LABELS = { vcpus: "vCPUs", memory_mb: "Memory, MiB", local_gb: "Disk, GB" };
// Nova reports these for every host; they tell few hosts apart, so lists leave them out.
const COMMON = new RegExp("^(id|cpu_info|service_name|hypervisor_hostname|hypervisor_version|hypervisor_type"
  + "|availability_zone|trait:.*|resources:.*|free_.*|current_workload|running_vms|status)$");

/** The properties that tell resources apart, the operator's own first. */
function distinctive(properties) {
  const all = Object.entries(properties).filter(([key]) => !COMMON.test(key));
  return [...all.filter(([key]) => !AMOUNTS[key]), ...all.filter(([key]) => AMOUNTS[key])];
}

/** The first properties of a resource in one line. */
export function shortProperties(properties, most = 4) {
  const all = distinctive(properties);
  const parts = all.slice(0, most).map(([key, value]) => h("span", { class: "property" },
    AMOUNTS[key] && Number.isFinite(Number(value)) ? AMOUNTS[key](value)
      : [h("span", { class: "quiet" }, name(key), " "), name(value)]));
  const rest = all.length - most;
  return h("span", { class: "properties" }, parts, rest > 0 ? h("span", { class: "quiet" }, `and ${rest} more`) : null);
}

/** All properties as `[label, content]`. */
export function allProperties(properties) {
  const known = distinctive(properties);
  const rest = Object.entries(properties).filter(([key]) => COMMON.test(key));
  return [...known, ...rest].map(([key, value]) => [LABELS[key] || name(key), longValue(value)]);
}

function longValue(value) {
  const text = plain(value);
  return text.length > 160 ? h("details", {}, h("summary", {}, name(`${text.slice(0, 60)}...`)), h("p", {}, name(text)))
    : name(text);
}

/**
 * A filter by properties: a text such as `vcpus >= 64 and rack = r1`, and a small form that adds
 * conditions to it.
 */
export class PropertiesField {
  /**
   * @param {object} options
   * @param {function(Array|null): void} options.changed receives the expression
   * @param {function(): Promise<{name: string, values?: string[]}[]>} options.suggest
   * @param {Array|null} [options.expression]
   */
  constructor({ changed, suggest, expression = null }) {
    this.changed = changed;
    this.suggest = suggest;
    this.expression = expression;
    this.input = h("input", { type: "text", value: expressionText(expression), spellcheck: "false",
      autocapitalize: "off", placeholder: "vcpus >= 16 and rack = r1" });
    this.input.addEventListener("change", () => this.read());
    this.input.addEventListener("keydown", (event) => { if (event.key === "Enter") this.read(); });
    this.opener = button([icon("plus"), "Condition"], () => this.toggle(), { "aria-expanded": "false" });
    this.adder = h("form", { class: "condition-form card", hidden: true, "aria-label": "Add a condition" });
    this.adder.id = uid("adder");
    this.opener.setAttribute("aria-controls", this.adder.id);
    this.element = field("Properties", this.input);
    this.element.classList.add("wide-field");
  }

  /** Show an error of the API about the expression. */
  fail(text) {
    clearErrors(this.element);
    setError(this.input, text);
  }

  /** Replace the expression. */
  set(expression) {
    this.expression = expression;
    this.input.value = expressionText(expression);
    clearErrors(this.element);
  }

  read() {
    clearErrors(this.element);
    try {
      const expression = parseExpression(this.input.value);
      if (JSON.stringify(expression) === JSON.stringify(this.expression)) return true;
      this.expression = expression;
      this.changed(expression);
      return true;
    } catch (error) {
      if (!(error instanceof ExpressionError)) throw error;
      setError(this.input, error.message);
      return false;
    }
  }

  toggle() {
    if (!this.adder.hidden) return this.close();
    this.adder.hidden = false;
    this.opener.setAttribute("aria-expanded", "true");
    if (!this.adder.firstChild) this.drawAdder();
    this.adder.querySelector("input").focus();
  }

  close() {
    this.adder.hidden = true;
    this.opener.setAttribute("aria-expanded", "false");
    this.opener.focus();
  }

  drawAdder() {
    const [names, values] = [uid("names"), uid("values")];
    const property = h("input", { name: "property", list: names, required: true, autocapitalize: "off",
      spellcheck: "false" });
    const operator = h("select", { name: "operator" },
      [["=", "is"], ["!=", "is not"], [">=", "is at least"], ["<=", "is at most"], [">", "is more than"],
        ["<", "is less than"]]
      .map(([value, words]) => h("option", { value }, words)));
    const value = h("input", { name: "value", list: values, required: true, autocapitalize: "off",
      spellcheck: "false" });
    const lists = [h("datalist", { id: names }), h("datalist", { id: values })];
    replace(this.adder, h("div", { class: "filters" }, field("Property", property), field("Comparison", operator),
      field("Value", value),
      h("button", { type: "submit", class: "button primary" }, "Add"), button("Close", () => this.close())), lists);
    this.adder.addEventListener("keydown", (event) => { if (event.key === "Escape") this.close(); });
    this.adder.addEventListener("submit", (event) => {
      event.preventDefault();
      clearErrors(this.adder);
      if (!property.value.trim()) return void (setError(property, "Fill in this field."), property.focus());
      this.add(property.value.trim(), operator.value, value.value.trim());
      property.value = value.value = "";
      property.focus();
    });
    this.fillLists(property, lists);
  }

  async fillLists(property, [names, values]) {
    let known = [];
    try {
      known = await this.suggest();
    } catch {
      return; // without suggestions, people write the names
    }
    const options = (list, texts) => replace(list, texts.map((text) => h("option", { value: text })));
    options(names, known.map((item) => item.name));
    const offer = () => options(values, known.find((item) => item.name === property.value.trim())?.values || []);
    property.addEventListener("input", offer);
    offer();
  }

  add(property, operator, value) {
    const text = /^-?\d+(\.\d+)?$/.test(value) ? Number(value) : value;
    const condition = [operator === "=" ? "==" : operator, `$${property}`, text];
    if (!this.read()) return;
    const before = this.expression;
    const expression = !before ? condition : before[0] === "and" ? [...before, condition] : ["and", before, condition];
    this.set(expression);
    this.changed(expression);
  }
}

/** The values that properties have among `resources`: suggestions where the API has no list of them. */
export function seenProperties(resources) {
  const found = new Map();
  for (const { properties } of resources) {
    for (const [key, value] of Object.entries(properties)) {
      if (String(value).length > 60) continue;
      if (!found.has(key)) found.set(key, new Set());
      found.get(key).add(value);
    }
  }
  return [...found].map(([key, values]) => ({ name: key, values: [...values].sort() })).sort((a, b) =>
    a.name.localeCompare(b.name));
}
