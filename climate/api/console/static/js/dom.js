// Building blocks of the page: elements, dialogs, forms, fields. Text is only ever set as text, never parsed
// as markup.

import { root } from "./api.js";
import { clock, offset, offsetName, toInput, utc, wallMoments, zoneName } from "./time.js";

const SVG = "http://www.w3.org/2000/svg";
const ICONS = new URL("../icons.svg", import.meta.url).pathname;

/**
 * Make an element. `on...` attributes are listeners, `class` and `dataset` as named; false, null and undefined
 * attributes and children are left out, true is an empty attribute.
 */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same as `h` for elements of SVG. */
export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  const { value, ...rest } = attributes || {};
  for (const [key, content] of Object.entries(rest)) set(element, key, content);
  element.append(...flat(children));
  // After the children: a select has its value from its options.
  if (value !== undefined) setValue(element, value);
  return element;
}

function setValue(element, value) {
  if (element.localName === "option" || element.localName === "li") element.setAttribute("value", value);
  else element.value = value ?? "";
}

function set(element, key, value) {
  if (value === null || value === undefined || value === false) return;
  if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
  else if (key === "dataset") Object.assign(element.dataset, value);
  // Screen readers say these texts, which may hold names.
  else if (key === "aria-label" || key === "title") element.setAttribute(key, plain(value));
  else element.setAttribute(key, value === true ? "" : String(value));
}

function flat(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}

export function replace(element, ...children) {
  element.replaceChildren(...flat(children));
  return element;
}

export function icon(symbol, label) {
  const attributes = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  const use = s("use", { href: `${ICONS}#${symbol}` });
  return s("svg", { class: `icon icon-${symbol}`, viewBox: "0 0 24 24", ...attributes }, use);
}

const BIDI = /[\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** A name as plain text: control and direction characters are replaced by visible ones. */
export function plain(text) {
  return String(text ?? "")
    .replace(/[\u0000-\u001f]/g, (sign) => String.fromCharCode(0x2400 + sign.charCodeAt(0)))
    .replace(/[\u007f-\u009f]/g, "\u2421")
    .replace(BIDI, (sign) => `[U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);
}

/** A name that somebody has chosen: isolated, so that it cannot reorder the text around it. */
export function name(text) {
  return h("bdi", {}, plain(text));
}

const LINGER = 1000; // ms in which a second message is added to the first, not put in its place
const VISIBLE = 8000; // ms
let announcing = 0;
let messages = [];
let announcedAt = 0;

/**
 * Have screen readers say `text`, in which names are plain, when they are done with what they say now.
 * With `visible`, everybody sees it for some seconds, too: for what nothing else on the page shows.
 */
export function announce(text, { visible = false } = {}) {
  const region = document.getElementById("announcer");
  if (!region || !text) return;
  if (Date.now() - announcedAt > LINGER) messages = [];
  announcedAt = Date.now();
  messages.push(text);
  clearTimeout(announcing);
  region.textContent = "";
  // The region must change for the same text to be said twice.
  announcing = setTimeout(() => { region.textContent = plain(messages.join(". ").replaceAll("..", ".")); }, 30);
  if (!visible) return;
  // An element of its own, as the region may soon say something else, too.
  const toast = h("div", { class: "toast", "aria-hidden": "true" }, text);
  document.body.append(toast);
  setTimeout(() => toast.remove(), VISIBLE);
}

let serial = 0;

/** An id that no other element of this page has. */
export function uid(prefix = "x") {
  serial += 1;
  return `${prefix}-${serial}`;
}

export function button(label, onclick, { kind = "", ...attributes } = {}) {
  const content = Array.isArray(label) ? label : [label];
  return h("button", { type: "button", class: `button ${kind}`.trim(), onclick, ...attributes }, content);
}

/** A link to a path of this service: a page of the console, or below the API. */
export function link(path, label, attributes = {}) {
  return h("a", { href: root(path), ...attributes }, label);
}

/** Open a modal dialog. Esc and the cross close it; the focus goes back to where it was. */
export function dialog({ title, content, actions = [], wide = false, onClose }) {
  const heading = uid("dialog");
  const close = () => element.close();
  const element = h("dialog", { class: wide ? "card wide" : "card", "aria-labelledby": heading },
    h("div", { class: "dialog-head" },
      h("h2", { id: heading }, title),
      button(icon("close"), close, { kind: "quiet square", "aria-label": "Close" })),
    content,
    actions.length ? h("div", { class: "actions" }, actions) : null);
  element.addEventListener("close", () => {
    element.remove();
    if (onClose) onClose();
  });
  document.body.append(element);
  element.showModal();
  if (!element.querySelector("[autofocus]")) {
    element.querySelector("input:not([type=radio]), select, textarea")?.focus();
  }
  return { element, close };
}

export function confirm({ title, text, action, danger = false }) {
  return new Promise((resolve) => {
    let answer = false;
    const yes = button(action, () => { answer = true; box.close(); }, { kind: danger ? "danger" : "primary" });
    const no = button("Cancel", () => box.close(), { autofocus: true });
    const box = dialog({ title, content: h("p", {}, text), actions: [yes, no], onClose: () => resolve(answer) });
  });
}

/** Call `callback` once, `milliseconds` after the last call of the returned function. */
export function debounce(callback, milliseconds) {
  let timer = 0;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => callback(...values), milliseconds);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

// Forms

export function field(label, control, hint, { whole = false } = {}) {
  control.id ||= uid("field");
  const note = hint ? h("p", { class: "hint", id: `${control.id}-hint` }, hint) : null;
  if (note) control.setAttribute("aria-describedby", note.id);
  return h("div", { class: whole ? "field whole" : "field" }, h("label", { for: control.id }, label), control, note);
}

export function check(label, control, hint) {
  control.id ||= uid("field");
  if (hint) control.setAttribute("aria-describedby", `${control.id}-hint`);
  return h("div", { class: "field" }, h("div", { class: "check" }, control, h("label", { for: control.id }, label)),
    hint ? h("p", { class: "hint", id: `${control.id}-hint` }, hint) : null);
}

/**
 * A form with one button. `submit` receives the named values; a Problem that it throws is shown beside the fields
 * that it names, or above the button.
 */
export function form(fields, label, submit, { locate, extra = [], busy = "Please wait" } = {}) {
  const problem = h("div", { role: "alert", class: "form-problem" });
  const send = h("button", { type: "submit", class: "button primary" }, label);
  const element = h("form", { novalidate: true, class: "stack" }, fields, problem,
    h("div", { class: "actions" }, send, extra));
  element.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (send.disabled) return;
    clearErrors(element);
    problem.replaceChildren();
    if (!filledIn(element)) return;
    send.disabled = true;
    send.textContent = busy;
    try {
      await submit(Object.fromEntries(new FormData(element)), element);
    } catch (error) {
      showErrors(element, problem, error, locate);
    }
    send.disabled = false;
    send.textContent = label;
  });
  return element;
}

/** Whether all required fields are filled in. */
export function filledIn(element) {
  let first = null;
  for (const control of element.querySelectorAll("input, select, textarea")) {
    if (control.disabled || control.checkValidity()) continue;
    setError(control, control.validity.valueMissing ? "Fill in this field." : control.validationMessage);
    first ??= control;
  }
  if (first) first.focus();
  return !first;
}

/** Put `text` below the control and bind it to it, until the user changes the control. */
export function setError(control, text) {
  control.addEventListener("input", () => clearError(control), { once: true });
  const id = `${control.id || (control.id = uid("field"))}-error`;
  control.setAttribute("aria-invalid", "true");
  const described = new Set((control.getAttribute("aria-describedby") || "").split(" ").filter(Boolean));
  control.setAttribute("aria-describedby", [...described.add(id)].join(" "));
  const old = document.getElementById(id);
  if (old) old.textContent = plain(text);
  else (control.closest(".field") || control.parentNode).append(h("p", { class: "error", id }, plain(text)));
}

export function clearErrors(element) {
  for (const control of element.querySelectorAll("[aria-invalid]")) clearError(control);
}

function clearError(control) {
  const id = `${control.id}-error`;
  control.removeAttribute("aria-invalid");
  const rest = (control.getAttribute("aria-describedby") || "").split(" ").filter((other) => other && other !== id);
  if (rest.length) control.setAttribute("aria-describedby", rest.join(" "));
  else control.removeAttribute("aria-describedby");
  document.getElementById(id)?.remove();
}

function showErrors(element, place, error, locate = byName) {
  const rest = [];
  let first = null;
  for (const item of (error.body && error.body.errors) || []) {
    const control = item.pointer && locate(element, item.pointer.replace(/^#\//, "").split("/"));
    if (!control) rest.push(lineOf(item));
    else {
      setError(control, item.detail);
      first ??= control;
    }
  }
  if (!first || rest.length) place.replaceChildren(problemNote(error, rest));
  if (first) first.focus();
}

// An error with its place in words, such as "template of reservation 1: ...".
export function lineOf(item) {
  return `${placeOf(item)}: ${item.detail}`;
}

function placeOf(item) {
  const [first, number, , ...names] = (item.pointer || "").replace(/^#\//, "").split("/");
  if (first === "reservations" && names.length) return `${names.join(" ")} of reservation ${+number + 1}`;
  return (item.pointer || item.parameter || item.header || "request").replace(/^#\//, "");
}

function byName(element, path) {
  return element.elements && element.elements[path[0]];
}

export function problemNote(error, details = []) {
  const [only = error.detail] = details.length === 1 ? details : [];
  const text = only || "The console has failed. Reload the page.";
  if (!error.detail) console.warn(error);
  return h("div", { class: "note bad" }, icon("refused"), h("div", {}, h("p", {}, plain(text)),
    details.length > 1 ? h("ul", {}, details.map((line) => h("li", { class: "small" }, plain(line)))) : null));
}

export async function loading(element, load, what = "") {
  const old = element.firstChild;
  const late = setTimeout(() =>
    element.replaceChildren(h("p", { class: "quiet", role: "status" }, ["Still loading", what && " ", what, "."])),
      1000);
  if (!old) element.replaceChildren(h("p", { class: "quiet" }, "Loading."));
  try {
    const content = await load();
    clearTimeout(late);
    element.replaceChildren(...[content].flat(Infinity).filter(Boolean));
    return true;
  } catch (error) {
    clearTimeout(late);
    if (error.name === "AbortError") return false;
    element.replaceChildren(
      h("div", { class: "stack" }, problemNote(error), button("Try again", () => loading(element, load, what))));
    return false;
  }
}

// A field for a moment

export function momentField(label, { date = null, required = false, name, hint, changed } = {}) {
  const note = h("p", { class: "hint", id: uid("utc") });
  const which = h("select", { "aria-label": `${label}: which of the two`, hidden: true });
  const input = h("input", { type: "datetime-local", name, required, "aria-describedby": note.id });
  const element = field(`${label} (${zoneName()} time)`, input, hint);
  input.setAttribute("aria-describedby", [note.id, hint && `${input.id}-hint`].filter(Boolean).join(" "));
  input.after(note, which);
  const explain = () => explained(input, note, which);
  input.addEventListener("input", () => { explain(); changed?.(); });
  which.addEventListener("change", () => { explain(); changed?.(); });
  const set = (value) => {
    input.value = value ? toInput(value) : "";
    explain(value);
  };
  set(date);
  return { element, input, set, read: () => chosen(input, which) };
}

function chosen(input, which) {
  const { dates } = wallMoments(input.value);
  return dates[which.value === "1" && dates.length > 1 ? 1 : 0] || null;
}

function explained(input, note, which, date = null) {
  const { dates, skippedTo } = wallMoments(input.value);
  if (dates.length > 1) offer(which, dates, date);
  which.hidden = dates.length < 2;
  const read = chosen(input, which);
  const problem = skippedTo ? skipped(skippedTo) : "";
  input.setCustomValidity(problem);
  note.textContent = problem || (read ? utc(read) : "");
  note.classList.toggle("bad-text", Boolean(problem));
}

function offer(which, dates, date) {
  const second = date ? date.getTime() === dates[1].getTime() : which.value === "1";
  const words = ["the first time", "the second time"];
  which.replaceChildren(...dates.map((item, index) =>
    h("option", { value: String(index) }, `${clock(item)} ${words[index]}, ${offsetName(item)}`)));
  which.value = second ? "1" : "0";
}

function skipped(to) {
  const from = clock(new Date(to.getTime() + offset(new Date(to.getTime() - 60_000))), "UTC"); // by the old offset
  return `This time does not exist: the clocks go from ${from} to ${clock(to)}.`;
}
