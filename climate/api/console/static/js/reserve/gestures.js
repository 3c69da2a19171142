// Pointer gestures on the calendar: drag to select, drag own bars, long press on touch, taps. It reports; it decides nothing.

const THRESHOLD = 4; // px until a press of the mouse becomes a drag
const SLOP = 10; // px that a finger may move during a long press
const LONG = 400; // ms of a long press
const GRIP = 7; // px around the edges of the selection that take hold of it
const SCROLL = 28; // px from the sides where dragging scrolls on

/**
 * @typedef {object} Drag
 * @property {"stretch"|"move"|"start"|"end"|"lease-move"|"lease-start"|"lease-end"} kind
 * @property {object} hit where the pointer went down
 * @property {boolean} touch
 */

/** Watches the pointer over `view` and reports drags to `on`: begin(drag), drag(drag, point), end(drag), cancel(drag). */
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
    element.addEventListener("touchmove", (event) => this.#drag && event.cancelable && event.preventDefault(), { signal, passive: false });
    element.addEventListener("contextmenu", (event) => (this.#drag || this.#press?.touch) && event.preventDefault(), { signal });
    element.addEventListener("dragstart", (event) => event.preventDefault(), { signal });
    element.addEventListener("click", (event) => this.#click(event), { signal, capture: true });
    document.addEventListener("keydown", (event) => this.#key(event), { signal, capture: true });
  }

  /** Whether a pointer holds something. */
  get active() {
    return this.#drag !== null;
  }

  /** End all listening. */
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
    if (!box || clientY < box.top || clientY > box.bottom || clientX < box.left - GRIP || clientX > box.right + GRIP) return null;
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
