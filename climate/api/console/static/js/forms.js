// Forms: labelled fields, errors beside them, and the focus on the first one.

import { button, h, icon, plain, uid } from "./dom.js";

/** A control with its label; `hint` explains it. Errors are put here by `showErrors`. */
export function field(label, control, hint, { whole = false } = {}) {
  control.id ||= uid("field");
  const note = hint ? h("p", { class: "hint", id: `${control.id}-hint` }, hint) : null;
  if (note) control.setAttribute("aria-describedby", note.id);
  return h("div", { class: whole ? "field whole" : "field" }, h("label", { for: control.id }, label), control, note);
}

/** A check box with its label to the right. */
export function check(label, control, hint) {
  control.id ||= uid("field");
  if (hint) control.setAttribute("aria-describedby", `${control.id}-hint`);
  return h("div", { class: "field" }, h("div", { class: "check" }, control, h("label", { for: control.id }, label)),
    hint ? h("p", { class: "hint", id: `${control.id}-hint` }, hint) : null);
}

/**
 * A form with one button. `submit` receives the named values; a Problem that it throws is shown
 * beside the fields that it names, or above the button.
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

/** Whether all required fields are filled in; says so beside those that are not. */
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

/** Remove all errors below `element`. */
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

/** Show a refusal: beside the fields that its pointers name, the rest in `place`. */
export function showErrors(element, place, error, locate = byName) {
  const rest = [];
  let first = null;
  for (const item of (error.body && error.body.errors) || []) {
    const control = item.pointer && locate(element, item.pointer.replace(/^#\//, "").split("/"));
    if (!control) rest.push(
      `${(item.pointer || item.parameter || item.header || "").replace(/^#\//, "")}: ${item.detail}`);
    else {
      setError(control, item.detail);
      first ??= control;
    }
  }
  if (!first || rest.length) place.replaceChildren(problemNote(error, rest));
  if (first) first.focus();
}

function byName(element, path) {
  return element.elements && element.elements[path[0]];
}

/** A box that says what is wrong. */
export function problemNote(error, details = []) {
  const text = error.detail || "The console has failed. Reload the page.";
  if (!error.detail) console.warn(error);
  return h("div", { class: "note bad" }, icon("refused"), h("div", {}, h("p", {}, plain(text)),
    details.length > 1 ? h("ul", {}, details.map((line) => h("li", { class: "small" }, plain(line)))) : null));
}

/**
 * Fill `element` with what `load` makes. Says that it loads, and offers a retry when it fails.
 * @returns {Promise<boolean>} whether it worked
 */
export async function loading(element, load, what = "") {
  const old = element.firstChild;
  const late = setTimeout(() =>
    element.replaceChildren(h("p", { class: "quiet", role: "status" }, `Still loading${what && ` ${what}`}.`)), 1000);
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
