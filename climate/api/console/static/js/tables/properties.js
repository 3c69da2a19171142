// Properties of resources: in short, in full, and a filter that is written or put together.

import { button, h, icon, name, plain, replace, uid } from "../dom.js";
import { clearErrors, field, setError } from "../forms.js";
import { count } from "./cells.js";
import { ExpressionError, expressionText, parseExpression } from "./expression.js";

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
export function distinctive(properties) {
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
