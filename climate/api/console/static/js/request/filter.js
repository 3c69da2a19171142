// The builder of a property filter: lines of property, comparison and value with suggestions, or
// the expression as text.

import { button, h, icon, replace, uid } from "../dom.js";
import { parsed } from "../lease/words.js";
import { OPERATORS, toExpression, toTerms } from "./expression.js";

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
      OPERATORS.map(([code, words]) => h("option", { value: code }, words)));
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
