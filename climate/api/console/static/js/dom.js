// Building blocks of the page. Text is only ever set as text, never parsed as markup.

import { root } from "./api.js";

const SVG = "http://www.w3.org/2000/svg";
const ICONS = new URL("../icons.svg", import.meta.url).pathname;

/**
 * Make an element. `on...` attributes are listeners, `class` and `dataset` as named; false, null
 * and undefined attributes and children are left out, true is an empty attribute.
 * @param {string} tag
 * @param {Object<string, *>} [attributes]
 * @param {...(Node|string|number|Array|null|undefined|false)} children
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
  else element.setAttribute(key, value === true ? "" : String(value));
}

function flat(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}

/** Replace everything inside `element`. */
export function replace(element, ...children) {
  element.replaceChildren(...flat(children));
  return element;
}

/** An icon of icons.svg. Without a label it is decoration. */
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
let announcing = 0;
let messages = [];
let announcedAt = 0;

/** Have screen readers say `text` when they are done with what they say now. */
export function announce(text) {
  const region = document.getElementById("announcer");
  if (!region || !text) return;
  if (Date.now() - announcedAt > LINGER) messages = [];
  announcedAt = Date.now();
  messages.push(text);
  clearTimeout(announcing);
  region.textContent = "";
  // The region must change for the same text to be said twice.
  announcing = setTimeout(() => { region.textContent = messages.join(". ").replaceAll("..", "."); }, 30);
}

let serial = 0;

/** An id that no other element of this page has. */
export function uid(prefix = "x") {
  serial += 1;
  return `${prefix}-${serial}`;
}

/** A button. `kind`: "primary", "danger", "quiet" or "" (bordered). */
export function button(label, onclick, { kind = "", ...attributes } = {}) {
  const content = Array.isArray(label) ? label : [label];
  return h("button", { type: "button", class: `button ${kind}`.trim(), onclick, ...attributes }, content);
}

/** A link to a path of this service: a page of the console, or below the API. */
export function link(path, label, attributes = {}) {
  return h("a", { href: root(path), ...attributes }, label);
}

/**
 * Open a modal dialog. Esc and the cross close it, focus goes back to where it was.
 * @param {{title: string, content: Node|Node[], actions?: Node[], wide?: boolean, onClose?: Function}} options
 * @returns {{element: HTMLDialogElement, close: function(): void}}
 */
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
  return { element, close };
}

/**
 * Ask before something that cannot be undone.
 * @param {{title: string, text: string|Node, action: string, danger?: boolean}} options
 * @returns {Promise<boolean>}
 */
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
