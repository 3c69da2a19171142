// Two handles of 44 px at the ends of the selection, for fingers. Keys and the card do the same without them.

import { h } from "../dom.js";

const SIZE = 44; // px, as in reserve.css

/** The handles. `on`: drag(part, time), end() */
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

  /** Put the handles at the ends of `box`, in the coordinates of `layer`; null hides them. */
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
    const element = h("div", { class: `reserve-handle ${part}`, "aria-hidden": "true", "data-handle": part, hidden: true });
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
