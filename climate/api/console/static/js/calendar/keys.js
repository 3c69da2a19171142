// The keys of browsing. They only count while the calendar has the focus (WCAG 2.1.4).

import { nextZoom } from "./scale.js";

/** The commands that the page answers, by key. */
const COMMANDS = { t: "today", g: "goto", f: "filter", n: "new", "?": "help" };

/** Listens to the keys of a view. */
export class Keys {
  /** @param {import("./view.js").CalendarView} view */
  constructor(view) {
    this.view = view;
    view.element.addEventListener("keydown", (event) => this.#pressed(event));
    view.element.addEventListener("focus", () => this.#focused());
  }

  #focused() {
    if (!this.view.layout) return;
    this.view.grid.current();
    this.view.grid.rebuild();
  }

  #pressed(event) {
    const { view } = this;
    if (event.target !== view.element || event.isComposing || !view.layout) return;
    const detail = { event, focus: view.focus };
    const free = view.dispatchEvent(new CustomEvent("gridkey", { detail, cancelable: true }));
    if (!free || event.defaultPrevented) return event.preventDefault();
    const act = ACTIONS[event.key];
    if (event.altKey || event.metaKey || (event.ctrlKey && !["Home", "End"].includes(event.key))) return;
    if (act) {
      event.preventDefault();
      act(view, event);
    } else if (COMMANDS[event.key.toLowerCase()]) {
      event.preventDefault();
      view.dispatchEvent(new CustomEvent("command", { detail: COMMANDS[event.key.toLowerCase()] }));
    }
  }
}

const ACTIONS = {
  ArrowLeft: (view) => sideways(view, -1),
  ArrowRight: (view) => sideways(view, 1),
  ArrowUp: (view) => vertically(view, -1),
  ArrowDown: (view) => vertically(view, 1),
  PageUp: (view) => vertically(view, -screen(view)),
  PageDown: (view) => vertically(view, screen(view)),
  Home: (view, { ctrlKey }) => (ctrlKey ? toRow(view, 0) : toTime(view, view.from)),
  End: (view, { ctrlKey }) => (ctrlKey ? toRow(view, view.layout.items - 1) : toTime(view, view.to - 1)),
  Enter: activate,
  " ": activate,
  Escape: (view) => view.dispatchEvent(new CustomEvent("command", { detail: "leave" })),
  "+": (view) => zoom(view, -1),
  "=": (view) => zoom(view, -1),
  "-": (view) => zoom(view, 1),
};

function screen({ size }) {
  return Math.max(1, Math.floor((size.height - size.top) / size.row) - 1);
}

function sideways(view, step) {
  const place = view.grid.current();
  if (place.area === "group") {
    const { group } = view.focus;
    if (view.state.folded.has(group.name) === step > 0) view.toggleGroup(group);
    return;
  }
  const cell = view.grid.cell();
  if (!cell) return view.goTo(view.from + (step * (view.to - view.from)) / 2);
  const time = step > 0 ? cell.end : cell.start - 1;
  const cells = view.grid.cells();
  const next = cells.find(({ start, end }) => start <= time && end > time);
  if (!next) view.goTo(view.from + (step * (view.to - view.from)) / 2);
  view.grid.moveTo({ ...place, time: next && step < 0 ? next.start : time });
}

function vertically(view, step) {
  const place = view.grid.current();
  const item = Math.min(view.layout.items - 1, Math.max(-1, place.item + step));
  const time = Math.min(view.to - 1, Math.max(view.from, place.time));
  view.grid.moveTo({ area: item < 0 ? "band" : "row", item, time });
}

function toRow(view, item) {
  view.grid.moveTo({ area: "row", item, time: view.grid.current().time });
}

function toTime(view, time) {
  view.grid.moveTo({ ...view.grid.current(), time });
}

function activate(view) {
  view.activate({ ...view.focus, edge: null });
}

function zoom(view, step) {
  const { time } = view.grid.current();
  view.zoomTo(nextZoom(view.state.zoom, step), view.xOf(Math.min(view.to, Math.max(view.from, time))));
}
