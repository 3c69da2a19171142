// How people select: pointer, handles, keys, and the bar of what they need.

import { button, h, icon, replace, uid } from "../dom.js";
import { noun } from "../lease/words.js";
import { FilterError, filterText, parseFilter } from "../tables/properties.js";
import { duration, parseDuration } from "../time.js";

const THRESHOLD = 4; // px until a press of the mouse becomes a drag
const SLOP = 10; // px that a finger may move during a long press
const LONG = 400; // ms of a long press
const GRIP = 7; // px around the edges of the selection that take hold of it
const SCROLL = 28; // px from the sides where dragging scrolls on

/**
 * Watches the pointer over `view` and reports drags to `on`: begin(drag), drag(drag, point), end(drag),
 * cancel(drag).
 */
export class Gestures {
  #view;
  #on;
  #press = null;
  #drag = null;
  #timer = 0;
  #ends = new AbortController();
  #dragged = false;
  #last = null;
  #scroller = 0;

  constructor(view, on) {
    this.#view = view;
    this.#on = on;
    const { signal } = this.#ends;
    const { element } = view;
    element.addEventListener("pointerdown", (event) => this.#down(event), { signal });
    element.addEventListener("pointermove", (event) => this.#move(event), { signal });
    element.addEventListener("pointerup", (event) => this.#up(event), { signal });
    element.addEventListener("pointercancel", () => this.#cancel(), { signal });
    element.addEventListener("lostpointercapture", () => this.#drag && this.#up(null), { signal });
    // The browser scrolls by touch unless the first move of the finger is taken from it.
    element.addEventListener("touchmove", (event) => this.#drag && event.cancelable && event.preventDefault(),
      { signal, passive: false });
    element.addEventListener("contextmenu", (event) => (this.#drag || this.#press?.touch) && event.preventDefault(),
      { signal });
    element.addEventListener("dragstart", (event) => event.preventDefault(), { signal });
    element.addEventListener("click", (event) => this.#click(event), { signal, capture: true });
    document.addEventListener("keydown", (event) => this.#key(event), { signal, capture: true });
  }

  get active() {
    return this.#drag !== null;
  }

  detach() {
    this.#cancel();
    this.#ends.abort();
  }

  #down(event) {
    this.#dragged = false;
    if (event.button !== 0 || !event.isPrimary || this.#drag) return;
    const hit = this.#view.hit(event.clientX, event.clientY);
    const isTime = (hit.area === "band" || (hit.area === "row" && hit.row?.id)) && !hit.heading;
    if (!isTime || onScrollBar(this.#view.element, event)) return;
    const touch = event.pointerType === "touch";
    this.#press = { x: event.clientX, y: event.clientY, id: event.pointerId, hit, touch, kind: this.#kind(event, hit) };
    clearTimeout(this.#timer);
    if (touch) this.#timer = setTimeout(() => this.#begin(), LONG);
  }

  #move(event) {
    this.#cursor(event);
    if (this.#drag) return this.#dragTo(event.clientX, event.clientY, event.altKey);
    const press = this.#press;
    if (!press || press.id !== event.pointerId) return undefined;
    const far = Math.hypot(event.clientX - press.x, event.clientY - press.y);
    if (press.touch) return far > SLOP ? this.#forget() : undefined;
    if (far < THRESHOLD) return undefined;
    this.#begin();
    return this.#dragTo(event.clientX, event.clientY, event.altKey);
  }

  #begin() {
    const press = this.#press;
    this.#press = null;
    if (!press) return;
    const drag = { kind: press.kind, hit: press.hit, touch: press.touch, x: press.x, y: press.y };
    this.#dragged = true;
    if (!this.#on.begin(drag)) return;
    this.#drag = drag;
    try {
      this.#view.element.setPointerCapture(press.id);
    } catch {
      // The pointer has gone meanwhile.
    }
    if (press.touch) navigator.vibrate?.(10);
  }

  #dragTo(x, y, exact) {
    this.#last = { x, y, exact };
    this.#on.drag(this.#drag, { x, y, exact, time: this.#view.timeAt(x) });
    this.#scroll(x);
  }

  // Dragging to the side scrolls the calendar on, as long as the pointer stays there.
  #scroll(x) {
    const { left, right } = this.#view.anchor({ place: "band", start: -1e15, end: 1e15, rows: [] });
    const step = x > right - SCROLL ? 1 : x < left + SCROLL && this.#drag.x > left + SCROLL ? -1 : 0;
    if (!step) return this.#stop();
    this.#scroller ||= setInterval(() => {
      this.#view.element.scrollLeft += step * 12;
      const { x: last, y, exact } = this.#last;
      this.#on.drag(this.#drag, { x: last, y, exact, time: this.#view.timeAt(last) });
    }, 40);
    return undefined;
  }

  #stop() {
    clearInterval(this.#scroller);
    this.#scroller = 0;
  }

  #up(event) {
    if (event && this.#press && event.pointerId !== this.#press.id) return;
    this.#forget();
    this.#stop();
    if (!this.#drag) return;
    const drag = this.#drag;
    this.#drag = null;
    this.#on.end(drag);
  }

  #cancel() {
    this.#forget();
    this.#stop();
    if (!this.#drag) return;
    const drag = this.#drag;
    this.#drag = null;
    this.#on.cancel(drag);
  }

  #forget() {
    clearTimeout(this.#timer);
    this.#press = null;
  }

  // A drag ends with a click, which must not open what is below the pointer.
  #click(event) {
    if (!this.#dragged || event.detail === 0) return;
    this.#dragged = false;
    event.stopPropagation();
    event.preventDefault();
  }

  #key(event) {
    if (event.key !== "Escape" || !this.#drag) return;
    event.preventDefault();
    event.stopPropagation();
    this.#cancel();
  }

  #kind(event, hit) {
    const held = this.#held(event);
    if (held) return held;
    const { interval, edge } = hit;
    if (hit.area !== "row" || !interval?.lease || interval.lease.mine === false) return "stretch";
    return edge ? `lease-${edge}` : "lease-move";
  }

  // Which part of the present selection is at the pointer.
  #held({ clientX, clientY }) {
    const box = this.#on.selectionBox();
    if (!box || clientY < box.top || clientY > box.bottom
      || clientX < box.left - GRIP || clientX > box.right + GRIP) return null;
    if (Math.abs(clientX - box.right) <= GRIP) return "end";
    return Math.abs(clientX - box.left) <= GRIP ? "start" : "move";
  }

  #shape(kind, hit) {
    if (kind.startsWith("lease-") && !this.#on.mayChange(hit, kind.slice(6))) return "pointer";
    if (kind.endsWith("start") || kind.endsWith("end")) return "ew-resize";
    return { stretch: "crosshair", move: "grab", "lease-move": "grab" }[kind] ?? "";
  }

  #cursor(event) {
    if (event.pointerType === "touch" || event.buttons) return;
    const hit = this.#view.hit(event.clientX, event.clientY);
    const isTime = (hit.area === "band" || hit.area === "row") && !hit.heading;
    const kind = isTime ? this.#kind(event, hit) : "";
    this.#view.element.style.cursor = this.#shape(kind, hit);
  }
}

function onScrollBar(element, { clientX, clientY }) {
  const box = element.getBoundingClientRect();
  return clientX > box.left + element.clientWidth || clientY > box.top + element.clientHeight;
}

// Two handles of 44 px at the ends of the selection, for fingers.

const SIZE = 44; // px, as in calendar.css

export class Handles {
  #view;
  #on;

  constructor(view, on) {
    this.#view = view;
    this.#on = on;
    this.start = this.#handle("start");
    this.end = this.#handle("end");
    this.elements = [this.start, this.end];
  }

  place(box, layer, { hasStart = true } = {}) {
    this.start.hidden = !box || !hasStart;
    this.end.hidden = !box;
    if (!box) return;
    const middle = (box.top + box.bottom) / 2 - layer.top;
    // Beyond the edge of the screen, a handle would let the page scroll sideways.
    const last = innerWidth - SIZE / 2;
    move(this.start, Math.max(SIZE / 2, box.left) - layer.left, middle);
    move(this.end, Math.min(last, box.right) - layer.left, middle);
  }

  #handle(part) {
    const element = h("div", { class: `reserve-handle ${part}`, "aria-hidden": "true", "data-handle": part,
      hidden: true });
    element.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      element.setPointerCapture(event.pointerId);
      this.#on.begin(part);
    });
    element.addEventListener("pointermove", (event) => {
      if (element.hasPointerCapture(event.pointerId)) this.#on.drag(part, this.#view.timeAt(event.clientX));
    });
    element.addEventListener("lostpointercapture", () => this.#on.end());
    return element;
  }
}

function move(element, left, top) {
  element.style.left = `${Math.round(left)}px`;
  element.style.top = `${Math.round(top)}px`;
}

// The keys of the calendar that select, move, stretch and send.

/** What a key means while there is a selection. */
export function selectedIntent(event, state) {
  const { key, shiftKey: shift, altKey: alt, ctrlKey: ctrl, metaKey: meta } = event;
  if (meta) return null;
  if (key === "ArrowLeft" || key === "ArrowRight") return arrow(key === "ArrowLeft" ? -1 : 1, { shift, alt, ctrl });
  if (ctrl || alt) return null;
  const simple = SELECTED[key];
  if (simple) return simple;
  const letter = key.toUpperCase();
  return letter.length === 1 && offered(state, letter) ? { type: "choose", letter } : null;
}

/** What a key means without a selection. */
export function browsingIntent(event) {
  const { key, shiftKey: shift, altKey: alt, ctrlKey: ctrl, metaKey: meta } = event;
  if (shift && !alt && !ctrl && !meta && (key === "ArrowLeft" || key === "ArrowRight")) {
    return { type: "begin", by: key === "ArrowLeft" ? -1 : 1 };
  }
  if (alt || ctrl || meta) return null;
  return BROWSING[key] ?? null;
}

const SELECTED = {
  ArrowUp: { type: "rows", by: -1 },
  ArrowDown: { type: "rows", by: 1 },
  Home: { type: "from-now" },
  End: { type: "to-next" },
  Enter: { type: "open" },
  " ": { type: "open" },
  "+": { type: "amount", by: 1 },
  "=": { type: "amount", by: 1 },
  "-": { type: "amount", by: -1 },
  Delete: { type: "discard" },
  Escape: { type: "discard" },
};

const BROWSING = {
  Enter: { type: "activate" },
  " ": { type: "activate" },
  m: { type: "change", part: "move" },
  M: { type: "change", part: "move" },
  e: { type: "change", part: "end" },
  E: { type: "change", part: "end" },
  Delete: { type: "remove" },
  Escape: { type: "leave" },
  n: { type: "form" },
  N: { type: "form" },
};

function arrow(by, { shift, alt, ctrl }) {
  if (shift && alt) return { type: "start", by, day: ctrl };
  if (shift) return { type: "end", by, day: ctrl };
  return alt ? null : { type: "move", by, day: ctrl };
}

function offered({ phase, verdict, windows }, letter) {
  if (phase !== "resting") return false;
  const alternatives = verdict?.kind === "refused" ? verdict.alternatives : windows;
  return alternatives.some((each) => each.letter === letter);
}

// The bar "I need 3 hosts with gpus >= 4 for 20 h" and its button.

const MOST = 100_000;

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
    this.#filter = input("filter", "Conditions on properties",
      { spellcheck: "false", autocapitalize: "off", placeholder: "any properties" });
    this.#length = input("duration", "Duration", { inputmode: "text" });
    this.#noun = h("span", { class: "word" });
    this.#find = button("Find soonest", null, { kind: "primary", type: "submit", "data-action": "find" });
    this.#problem = h("p", { class: "bar-problem", id: note, role: "alert", hidden: true });
    const form = h("form", { class: "reserve-bar", novalidate: true, "aria-label": "What you need" },
      h("span", { class: "word first" }, "I need"), this.#amount, this.#noun, this.#filter,
      h("span", { class: "word" }, "for"), this.#length, this.#find);
    form.addEventListener("submit", (event) => { event.preventDefault(); this.#submit(); });
    this.element = h("div", { class: "reserve-bar-box" }, form, this.#problem);
    this.element.addEventListener("keydown", (event) => event.key === "Escape" && this.#clear());
    for (const each of [this.#amount, this.#filter, this.#length]) {
      each.setAttribute("aria-describedby", note);
      each.addEventListener("change", () => this.#read());
      each.addEventListener("input", () => this.#clear());
    }
  }

  show({ amount, properties, duration: seconds, resourceType }) {
    const before = this.#values;
    this.#values = { amount, properties, duration: seconds };
    if (before.amount !== amount || !this.#amount.value) write(this.#amount, String(amount));
    if (!this.#filter.dataset.shown || JSON.stringify(before.properties) !== JSON.stringify(properties)) {
      write(this.#filter, filterText(properties));
    }
    if (before.duration !== seconds || !this.#length.value) write(this.#length, duration(seconds));
    this.#filter.dataset.shown = "yes";
    this.#filter.title = this.#filter.value;
    this.#noun.textContent = `${noun(resourceType, amount)} with`;
  }

  complain(text) {
    this.#invalid(this.#filter, text);
  }

  /** Say something below the bar, "" for nothing. */
  note(text, action = null) {
    this.#clear();
    if (!text) return;
    this.#tell(text, action && button(action[0], () => { this.#clear(); action[1](); }));
  }

  setBusy(busy, blocked = "") {
    this.#busy = busy;
    this.#find.textContent = busy ? "Searching..." : "Find soonest";
    this.#find.setAttribute("aria-disabled", String(busy || Boolean(blocked)));
    this.#find.title = blocked;
  }

  focus() {
    this.#amount.focus();
    this.#amount.select();
  }

  focusFilter() {
    this.#filter.focus();
    this.#filter.select();
  }

  #submit() {
    if (!this.#busy && this.#read()) this.#on.find();
  }

  #read() {
    this.#clear();
    const amount = Number(this.#amount.value);
    if (!Number.isInteger(amount) || amount < 1 || amount > MOST) {
      return this.#invalid(this.#amount, "Write a whole number from 1 on.");
    }
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
    const changed = Object.entries(next).filter(([key, value]) =>
      JSON.stringify(value) !== JSON.stringify(this.#values[key]));
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
    const close = button(icon("close"), () => { this.#clear(); this.#amount.focus(); },
      { kind: "quiet square", "aria-label": "Close" });
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
