// The bar "I need 3 hosts with gpus >= 4 for 20 h" and its button. What is typed stays, right or wrong.

import { button, h, icon, replace, uid } from "../dom.js";
import { duration, parseDuration } from "../time.js";
import { FilterError, filterText, parseFilter } from "./filter.js";
import { noun } from "./wording.js";

const MOST = 100_000;

/** The bar. `on`: change({amount} | {properties} | {duration}), find() */
export class Bar {
  #on;
  #amount;
  #filter;
  #length;
  #noun;
  #problem;
  #find;
  #values = { amount: 1, properties: null, duration: 3600 };
  #busy = false;

  constructor(on) {
    this.#on = on;
    const note = uid("bar-problem");
    this.#amount = input("amount", "Amount", { type: "number", min: 1, max: MOST, step: 1, inputmode: "numeric" });
    this.#filter = input("filter", "Conditions on properties", { spellcheck: "false", autocapitalize: "off", placeholder: "any properties" });
    this.#length = input("duration", "Duration", { inputmode: "text" });
    this.#noun = h("span", { class: "word" });
    this.#find = button("Find soonest", () => this.#submit(), { kind: "primary", "data-action": "find" });
    this.#problem = h("p", { class: "bar-problem", id: note, role: "alert", hidden: true });
    const form = h("form", { class: "reserve-bar", novalidate: true, "aria-label": "What you need" },
      h("span", { class: "word first" }, "I need"), this.#amount, this.#noun, this.#filter,
      h("span", { class: "word" }, "for"), this.#length, this.#find);
    for (const each of [this.#amount, this.#filter, this.#length]) each.setAttribute("aria-describedby", note);
    form.addEventListener("submit", (event) => { event.preventDefault(); this.#submit(); });
    this.#amount.addEventListener("change", () => this.#read());
    this.#filter.addEventListener("change", () => this.#read());
    this.#length.addEventListener("change", () => this.#read());
    this.element = h("div", { class: "reserve-bar-box" }, form, this.#problem);
    this.element.addEventListener("keydown", (event) => event.key === "Escape" && this.#clear());
    for (const each of [this.#amount, this.#filter, this.#length]) each.addEventListener("input", () => this.#clear());
  }

  /** Show these values, except in the field that has the focus. */
  show({ amount, properties, duration: seconds, resourceType }) {
    const before = this.#values;
    this.#values = { amount, properties, duration: seconds };
    if (before.amount !== amount || !this.#amount.value) write(this.#amount, String(amount));
    if (!this.#filter.dataset.shown || JSON.stringify(before.properties) !== JSON.stringify(properties)) write(this.#filter, filterText(properties));
    if (before.duration !== seconds || !this.#length.value) write(this.#length, duration(seconds));
    this.#filter.dataset.shown = "yes";
    this.#filter.title = this.#filter.value;
    this.#noun.textContent = `${noun(resourceType, amount)} with`;
  }

  /** Say what is wrong with the conditions: the service's own sentence. "" if nothing is. */
  complain(text) {
    this.#invalid(this.#filter, text);
  }

  /** Say something below the bar, "" for nothing; `action`: a label and what it does. */
  note(text, action = null) {
    this.#clear();
    if (!text) return;
    this.#tell(text, action && button(action[0], () => { this.#clear(); action[1](); }));
  }

  /** Whether a search is under way, and whether reserving is possible at all. */
  setBusy(busy, blocked = "") {
    this.#busy = busy;
    this.#find.textContent = busy ? "Searching..." : "Find soonest";
    this.#find.setAttribute("aria-disabled", String(busy || Boolean(blocked)));
    this.#find.title = blocked;
  }

  /** Put the focus where the amount is. */
  focus() {
    this.#amount.focus();
    this.#amount.select();
  }

  /** Put the focus into the conditions. */
  focusFilter() {
    this.#filter.focus();
    this.#filter.select();
  }

  #submit() {
    if (!this.#busy && this.#read()) this.#on.find();
  }

  /** Read all fields; false if one of them is wrong. */
  #read() {
    this.#clear();
    const amount = Number(this.#amount.value);
    if (!Number.isInteger(amount) || amount < 1 || amount > MOST) return this.#invalid(this.#amount, "Write a whole number from 1 on.");
    const seconds = parseDuration(this.#length.value);
    if (!seconds) return this.#invalid(this.#length, 'Write a duration such as "20 h", "90 min" or "2 d".');
    let properties;
    try {
      properties = parseFilter(this.#filter.value);
    } catch (error) {
      if (!(error instanceof FilterError)) throw error;
      return this.#invalid(this.#filter, error.message);
    }
    if (!properties) this.#filter.value = "";
    this.#report({ amount, properties, duration: seconds });
    return true;
  }

  #report(next) {
    const changed = Object.entries(next).filter(([key, value]) => JSON.stringify(value) !== JSON.stringify(this.#values[key]));
    if (changed.length) this.#on.change(Object.fromEntries(changed));
  }

  #invalid(control, text) {
    this.#clear();
    if (!text) return false;
    control.setAttribute("aria-invalid", "true");
    // Positions within the JSON mean nothing to people who wrote text.
    this.#tell(text.replace(/ at (\[\d+\])+/g, ""));
    return false;
  }

  #tell(text, ...actions) {
    const close = button(icon("close"), () => { this.#clear(); this.#amount.focus(); }, { kind: "quiet square", "aria-label": "Close" });
    replace(this.#problem, h("span", { class: "grow" }, text), actions, close);
    this.#problem.hidden = false;
  }

  #clear() {
    for (const control of [this.#amount, this.#filter, this.#length]) control.removeAttribute("aria-invalid");
    replace(this.#problem);
    this.#problem.hidden = true;
  }
}

function input(name, label, attributes) {
  return h("input", { "data-field": name, "aria-label": label, autocomplete: "off", ...attributes });
}

function write(control, text) {
  if (document.activeElement !== control) control.value = text;
}
