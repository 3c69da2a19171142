// Properties: expressions as text and as conditions, and the fields that filter by them.

import { button, clearErrors, field, h, icon, replace, setError, uid } from "../dom.js";

/** Text that is no condition. */
export class FilterError extends Error {
  constructor(message, at) {
    super(message);
    this.at = at;
  }
}

const TOKEN = /\s*(?:([()])|(,)|(>=|<=|==|!=|=|>|<)|"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s()<>=!,"']+))/y;
const WORDS = ["and", "or", "not", "in"];

export function parseFilter(text) {
  if (!text.trim()) return null;
  if (text.trim().startsWith("[")) return json(text);
  const tokens = read(text);
  const parser = { tokens, at: 0, length: text.length };
  const expression = either(parser);
  const rest = peek(parser);
  if (rest) throw new FilterError(`Write "and" or "or" before "${rest.text}".`, rest.at);
  return expression;
}

export function filterText(expression) {
  if (!expression || !expression.length) return "";
  const [op, ...parts] = expression;
  if (op === "and" || op === "or") return parts.map((part) => nested(part, op)).join(` ${op} `);
  if (op === "not") return `not ${nested(parts[0], op)}`;
  const name = quoted(String(parts[0]).replace(/^\$/, ""));
  if (op === "in") return `${name} in ${parts.slice(1).flat().map(quoted).join(", ")}`;
  return `${name} ${op === "==" ? "=" : op} ${quoted(parts[1])}`;
}

function json(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new FilterError("This is not JSON.", 0);
  }
}

function read(text) {
  const tokens = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.trimEnd().length) {
    const from = TOKEN.lastIndex;
    const match = TOKEN.exec(text);
    if (!match) throw new FilterError(`"${text.slice(from).trim()[0]}" is not expected here.`, from);
    const at = from + match[0].length - match[0].trimStart().length;
    const value = match[4] ?? match[5];
    const kind = match[1] || (match[2] && ",") || (match[3] && "op") || (value === undefined ? "word" : "text");
    const content = value === undefined ? match[0].trim() : value.replace(/\\(.)/g, "$1");
    tokens.push({ kind, text: content, at });
  }
  return tokens;
}

const peek = (parser) => parser.tokens[parser.at];
const isWord = (token, word) => Boolean(token) && token.kind === "word" && token.text.toLowerCase() === word;

function either(parser) {
  return joined(parser, "or", both);
}

function both(parser) {
  return joined(parser, "and", single);
}

function joined(parser, word, part) {
  const parts = [part(parser)];
  while (isWord(peek(parser), word)) {
    parser.at += 1;
    parts.push(part(parser));
  }
  return parts.length === 1 ? parts[0] : [word, ...parts];
}

function single(parser) {
  const token = peek(parser);
  if (isWord(token, "not")) {
    parser.at += 1;
    return ["not", single(parser)];
  }
  if (!token || token.kind !== "(") return comparison(parser);
  parser.at += 1;
  const inner = either(parser);
  close(parser, token);
  return inner;
}

function close(parser, open) {
  if (peek(parser)?.kind !== ")") throw new FilterError('A ")" is missing.', open.at);
  parser.at += 1;
}

function comparison(parser) {
  const name = take(parser, "Write a property, a comparison and a value: gpus >= 4.");
  const op = peek(parser);
  if (isWord(op, "in")) return membership(parser, name.text);
  if (!op || op.kind !== "op") {
    throw new FilterError(`Write a comparison after "${name.text}": ${name.text} >= 4.`, op ? op.at : parser.length);
  }
  parser.at += 1;
  const value = take(parser, `Write a value after "${name.text} ${op.text}".`);
  return [op.text === "=" ? "==" : op.text, `$${name.text.replace(/^\$/, "")}`, typed(value)];
}

function membership(parser, name) {
  parser.at += 1;
  const open = peek(parser)?.kind === "(" ? parser.tokens[parser.at++] : null; // "in (r1, r2)" or "in r1, r2"
  const values = [typed(take(parser, `Write values after "${name} in", with commas.`))];
  while (peek(parser)?.kind === ",") {
    parser.at += 1;
    values.push(typed(take(parser, "Write a value after the comma.")));
  }
  if (open) close(parser, open);
  return ["in", `$${name.replace(/^\$/, "")}`, ...values];
}

function take(parser, message) {
  const token = peek(parser);
  const plain = token && (token.kind === "text" || (token.kind === "word"
    && !WORDS.includes(token.text.toLowerCase())));
  if (!plain) throw new FilterError(message, token ? token.at : parser.length);
  parser.at += 1;
  return token;
}

function typed({ kind, text }) {
  return kind === "word" ? scalar(text) : text;
}

/** A number if the text is one as people write it, else the text: "007" stays as it is. */
function scalar(text) {
  return /^[+-]?(0|[1-9]\d{0,14})(\.\d+)?$/.test(text) ? Number(text) : text;
}

function nested(expression, outer) {
  const isLogic = ["and", "or"].includes(expression[0]);
  const text = filterText(expression);
  return isLogic && expression[0] !== outer ? `(${text})` : text;
}

function quoted(value) {
  const text = String(value);
  const plain = typeof value === "number" || (/^[^\s()<>=!,"'[]+$/.test(text) && !WORDS.includes(text.toLowerCase()));
  const isTextOfNumber = typeof value === "string" && /^[+-]?\d+(\.\d+)?$/.test(text);
  // The API compares 4 and "4" alike, so a number needs no quotes either.
  return plain || isTextOfNumber ? text : `"${text.replace(/["\\]/g, "\\$&")}"`;
}

// Expressions as the terms of a form

function parsed(text) {
  if (Array.isArray(text)) return text;
  try {
    return parseFilter(String(text ?? ""));
  } catch {
    return null;
  }
}

/** An expression of a reservation in words: "gpus >= 4 and vcpus >= 64"; the text itself if it is none. */
export function expressionText(text) {
  const expression = parsed(text);
  return Array.isArray(expression) ? filterText(expression) : String(text ?? "");
}

const COMPARISONS = [["==", "is"], ["!=", "is not"], [">=", "is at least"], ["<=", "is at most"],
  [">", "is more than"], ["<", "is less than"],
  ["in", "is one of"]];

const KNOWN = new Set([...COMPARISONS.map(([operator]) => operator), "="]);

/** What is wrong with the text of an expression; "" if nothing is. */
function problemOf(text) {
  try {
    parseFilter(text);
    return "";
  } catch (error) {
    return error.message;
  }
}

/** The terms of an expression that the form can show: a comparison, or several joined by "and". */
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

function toExpression(terms) {
  const parts = terms.filter(({ property, value }) => property && value !== "").map(fromTerm);
  if (!parts.length) return "";
  return parts.length === 1 ? parts[0] : ["and", ...parts];
}

function fromTerm({ property, operator, value }) {
  const values = operator === "in" ? value.split(",") : [value];
  return [operator, `$${property}`, ...values.map((item) => scalar(item.trim()))];
}

function normal(text) {
  const json = JSON.stringify(parsed(text) ?? (text || ""));
  return json === "[]" ? '""' : json;
}

export function isSame(one, other) {
  return normal(one) === normal(other);
}

// The builder of a property filter

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
    text.value = typeof content === "string" ? content : filterText(content);
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

  text.addEventListener("input", () => text.setCustomValidity(problemOf(text.value)));
  properties().then((list) => {
    for (const property of list) known.set(property.name, property);
    replace(names, list.map((property) => h("option", { value: property.name })));
  }).catch(() => {}); // Suggestions only help.
  set(value);
  return { element, read, set, controls: () => (isText ? [text] : [...lines.querySelectorAll("[data-term]")]) };
}

/** A filter by properties: a text such as `vcpus >= 64 and rack = r1`, and a small form that adds conditions to it. */
export class PropertiesField {
  constructor({ changed, suggest, expression = null }) {
    this.changed = changed;
    this.suggest = suggest;
    this.expression = expression;
    this.input = h("input", { type: "text", value: filterText(expression), spellcheck: "false",
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

  fail(text) {
    clearErrors(this.element);
    setError(this.input, text);
  }

  set(expression) {
    this.expression = expression;
    this.input.value = filterText(expression);
    clearErrors(this.element);
  }

  read() {
    clearErrors(this.element);
    try {
      const expression = parseFilter(this.input.value);
      if (JSON.stringify(expression) === JSON.stringify(this.expression)) return true;
      this.expression = expression;
      this.changed(expression);
      return true;
    } catch (error) {
      if (!(error instanceof FilterError)) throw error;
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
      COMPARISONS.map(([value, words]) => h("option", { value }, words)));
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
    const condition = fromTerm({ property, operator, value });
    if (!this.read()) return;
    const before = this.expression;
    const expression = !before ? condition : before[0] === "and" ? [...before, condition] : ["and", before, condition];
    this.set(expression);
    this.changed(expression);
  }
}
