// The calendar for assistive technology and keys: cells as an ARIA grid, browsing, and what is where.

import { cellsOf, cut, intervalAt } from "../chart/data.js";
import { itemAt, itemNumber, itemOfRow } from "../chart/drawing.js";
import { h } from "../dom.js";
import { typeWords } from "../lease/words.js";
import { serverNow } from "../time.js";
import { cellWords, level, momentWords, nextZoom, rowWords, spanWords } from "./scale.js";

export class GridCells {
  constructor(view) {
    this.view = view;
    this.band = h("div", { role: "presentation" });
    this.body = h("div", { class: "calendar-cells-body", role: "presentation" });
    this.element = h("div", { class: "calendar-cells", role: "rowgroup" }, this.band, this.body);
    this.place = null; // {area: "band"|"group"|"row", item, time}
    this.places = new Map();
  }

  rebuild() {
    const { view } = this;
    if (!view.layout) return;
    this.built = [view.from, view.scale, view.element.scrollTop, view.layout];
    this.element.classList.remove("moving");
    this.places.clear();
    this.active = null;
    this.body.style.top = `${view.size.top}px`;
    this.body.style.left = "0";
    view.element.setAttribute("aria-rowcount", String(view.layout.items + 1));
    const steps = this.#bandCells();
    // Without cells, the row of the band has nothing to say yet, unless it says what is missing.
    renew(this.band, steps.length || view.needs ? [this.#bandLine(steps)] : []);
    renew(this.body, this.#items().map((item) => (item.kind === "group" ? this.#group(item) : this.#row(item))));
    if (this.active) view.element.setAttribute("aria-activedescendant", this.active);
    else view.element.removeAttribute("aria-activedescendant");
  }

  isInPlace() {
    const { view, built } = this;
    return Boolean(built) && Math.abs(built[0] - view.from) * view.scale < 1 && built[1] === view.scale
      && built[2] === view.element.scrollTop && built[3] === view.layout;
  }

  // The row of the focus stays in the grid when it is scrolled out of sight.
  #items() {
    const items = this.view.itemsInSight().filter(({ height }) => height >= 8);
    const item = this.place && this.place.area !== "band" ? this.#item() : null;
    if (!item || items.some((other) => other.item === item.item)) return items;
    return item.item < (items[0]?.item ?? 0) ? [item, ...items] : [...items, item];
  }

  #item() {
    return itemNumber(this.view.layout, Math.min(this.place.item, this.view.layout.items - 1));
  }

  #bandLine(steps) {
    const { view } = this;
    const words = typeWords(view.state.resourceType);
    const missing = view.needs ? `; free capacity depends on ${view.needs.join(", ")}` : "";
    const heading = `Any matching ${words.one}, you need ${view.state.amount}${missing}`;
    const { left, axis, band } = view.size;
    const where = { area: "band", item: -1 };
    const label = ({ free, start, end }) => `${free} free, ${spanWords(start, end)}`;
    const cells = steps.map((cell) => this.#cell(label(cell), cell, band, where));
    return this.#line({ item: -1, height: band }, axis, this.#header(heading, left, band, where), cells);
  }

  #bandCells() {
    const { view } = this;
    return cut(view.bandSteps(), view.from, view.to);
  }

  #group(item) {
    const { view } = this;
    const { name, rows, free_now: free } = item.group;
    const label = `${name || "none"}, ${free === undefined ? rows : [free, "of", rows, "free now"].join(" ")}`;
    const where = { area: "group", item: item.item };
    const header = this.#header(label, view.size.width, item.height, where);
    header.setAttribute("aria-expanded", String(!view.state.folded.has(name)));
    return this.#line(item, this.#top(item), header);
  }

  #row(item) {
    const { view } = this;
    const row = view.data.row(item.index);
    const where = { area: "row", item: item.item };
    const header = this.#header(row ? rowWords(row) : "Loading", view.size.left, item.height, where);
    const make = (cell) => this.#cell(this.#words(item, cell), cell, item.height, where);
    const cells = this.#rowCells(item.index).map(make);
    return this.#line(item, this.#top(item), header, cells);
  }

  #rowCells(index) {
    const { view } = this;
    const [first, last] = this.#loaded();
    return cellsOf(view.intervals(index), first, last).filter(({ start, end }) => end > view.from && start < view.to);
  }

  #loaded() {
    const { windows, state } = this.view;
    return [windows[0], windows[windows.length - 1] + level(state.zoom).chunk];
  }

  #words(item, cell) {
    const state = this.view.data.stateOf(item.index, this.view.windows[0]);
    if (state === "failed") return "Not loaded. Press Enter to try again.";
    if (state !== "ready") return "Loading";
    const [first, last] = this.#loaded();
    const open = cell.kind === null && cell.end === last;
    if (open) return cell.start === first ? "Free" : `Free from ${momentWords(cell.start)}`;
    return `${cellWords(cell)}, ${spanWords(cell.start, cell.end)}`;
  }

  #top({ y }) {
    return y - this.view.element.scrollTop;
  }

  #line({ item, height }, top, ...children) {
    const row = h("div", { role: "row", class: "calendar-row", "aria-rowindex": String(item + 2) }, children);
    place(row, 0, top, this.view.size.width, height);
    return row;
  }

  #header(label, width, height, where) {
    const words = h("span", { class: "visually-hidden" }, label);
    const element = h("div", { role: "rowheader", id: this.#id(where) }, words);
    place(element, 0, 0, width, height);
    if (where.area === "group" && this.#isActive(where)) this.#activate(element);
    return element;
  }

  #cell(label, cell, height, where) {
    const { view } = this;
    const id = this.#id({ ...where, start: cell.start, time: Math.max(cell.start, view.from) });
    const element = h("div", { role: "gridcell", "aria-label": label, id });
    const left = Math.max(view.size.left, view.localX(cell.start));
    place(element, left, 0, Math.max(3, Math.min(view.size.width, view.localX(cell.end)) - left), height);
    if (this.#isActive(where) && this.place.time >= cell.start && this.place.time < cell.end) this.#activate(element);
    return element;
  }

  // The same cell has the same id each time, so that what assistive technology remembers stays true.
  #id(where) {
    let id = `cell-${where.item + 1}-${where.start ?? "head"}`;
    while (this.places.has(id)) id += "x"; // Shared hosts have cells with the same start.
    this.places.set(id, where);
    return id;
  }

  #isActive({ area, item }) {
    return this.place?.area === area && this.place.item === item;
  }

  #activate(element) {
    if (this.active) return; // Shared hosts have cells that overlap.
    element.classList.add("active");
    this.active = element.id;
  }

  // The focus

  current() {
    const { view } = this;
    this.place ??= { area: "band", item: -1, time: Math.max(view.from, Math.min(serverNow().getTime(), view.to - 1)) };
    if (this.place.item >= view.layout.items) this.place = { ...this.place, item: view.layout.items - 1 };
    return this.place;
  }

  cells() {
    const { view } = this;
    const [first, last] = this.#loaded();
    if (this.place.area === "band") return view.bandSteps();
    const item = this.#item();
    return item?.kind === "row" ? cellsOf(view.intervals(item.index), first, last) : [];
  }

  /** The cell that has the focus: `{start, end, kind, lease}`; null if there is none. */
  cell() {
    const { time } = this.current();
    const cells = this.cells().filter(({ start, end }) => start <= time && end > time);
    return cells.find(({ lease }) => lease) ?? cells[0] ?? null;
  }

  moveTo(where) {
    const { view } = this;
    this.place = where;
    const item = where.area === "band" ? null : this.#item();
    if (item) {
      this.place = { ...where, area: item.kind, item: item.item };
      view.revealItem(item);
    }
    if (this.place.area !== "group") this.#revealCell();
    this.rebuild();
  }

  // Of a long cell, half a screen is enough.
  #revealCell() {
    const { view } = this;
    const { time } = this.place;
    const half = (view.to - view.from) / 2;
    const cell = this.cell() ?? { start: time, end: time + 1 };
    if (Math.min(cell.end, view.to) - Math.max(cell.start, view.from) > half / 8) return;
    if (cell.start >= view.from) view.revealTime(cell.start, Math.min(cell.end, cell.start + half));
    else view.revealTime(Math.max(cell.start, cell.end - half), cell.end);
  }

  focusHit({ area, row, group, time }) {
    const { view } = this;
    if (area === "band") this.place = { area, item: -1, time };
    else if (area === "row") this.place = { area, item: itemOfRow(view.layout, row.index).item, time };
    else if (area === "group") this.place = { area, item: itemOfRow(view.layout, group.first).item, time };
    else return;
    if (area === "group") this.place.item = groupItem(view.layout, group);
    this.rebuild();
  }

  focus() {
    const { view } = this;
    const { area, time } = this.current();
    const item = area === "band" ? null : this.#item();
    const cell = area === "group" ? null : this.cell();
    const unknown = { id: null, name: "", state: null, index: item?.index };
    return {
      area, time, cell, group: item?.kind === "group" ? item.group : null,
      row: item?.kind === "row" ? view.data.row(item.index) ?? unknown : null,
      interval: cell && cell.kind !== null && cell.kind !== undefined ? cell : null,
    };
  }

  hitOf(element) {
    const where = this.places.get(element.closest("[id]").id);
    if (where) this.place = { area: where.area, item: where.item, time: where.time ?? this.current().time };
    return { ...this.focus(), edge: null };
  }
}

function groupItem(layout, group) {
  return itemAt(layout, layout.parts.find((part) => part.group === group)?.y ?? 0).item;
}

// Rows that have not changed stay: a reader that is in one of them is not thrown out.
function renew(parent, rows) {
  const old = new Map([...parent.children].map((row) => [row.getAttribute("aria-rowindex"), row]));
  const next = rows.map((row) => {
    const before = old.get(row.getAttribute("aria-rowindex"));
    return before && before.isEqualNode(row) ? before : row;
  });
  const same = next.length === parent.children.length && next.every((row, index) => row === parent.children[index]);
  if (!same) parent.replaceChildren(...next);
}

function place(element, left, top, width, height) {
  element.style.left = `${left}px`;
  element.style.top = `${top}px`;
  element.style.width = `${width}px`;
  element.style.height = `${height}px`;
}

// The keys of browsing.

const COMMANDS = { t: "today", g: "goto", f: "filter", n: "new", "?": "help" };

/** Listens to the keys of a view. */
export class Keys {
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

// Sizes of the calendar's parts, and what lies where.

const EDGE = 6; // px around the ends of a bar that take hold of the end

/** The sizes in px: they follow the size of the text (`font` is 1 at 15 px). */
export function measure({ clientWidth: width, clientHeight: height }, density) {
  const font = parseFloat(getComputedStyle(document.documentElement).fontSize) / 15;
  const phone = width / font < 700;
  const left = Math.round(Math.min((phone ? 104 : 213) * font, width * 0.4));
  const axis = Math.round(52 * font);
  const band = Math.round((phone ? 76 : 92) * font);
  const row = density === "overview" ? 2 : Math.round((phone ? 34 : 30) * font);
  return {
    width, height, font, phone, left, axis, band, row, group: Math.round(34 * font), top: axis + band,
    body: Math.max(40, width - left), ratio: Math.min(3, devicePixelRatio || 1),
  };
}

export function hitAt(view, clientX, clientY) {
  const { size } = view;
  const box = view.element.getBoundingClientRect();
  const x = clientX - box.left;
  const y = clientY - box.top;
  const time = view.timeAt(clientX);
  const outside = { area: "outside", row: null, interval: null, edge: null, time, heading: x < size.left };
  if (x < 0 || y < 0 || x >= size.width || y >= size.height) return outside;
  if (y < size.axis) return { ...outside, area: "axis" };
  if (y < size.top) return { ...outside, area: "band" };
  const item = itemAt(view.layout, y - size.top + view.element.scrollTop);
  if (!item) return outside;
  if (item.kind === "group") return { ...outside, area: "group", group: item.group };
  const row = view.data.row(item.index) ?? { id: null, name: "", state: null, index: item.index };
  return { ...outside, area: "row", row, ...(outside.heading ? null : intervalHit(view, item.index, time)) };
}

function intervalHit(view, index, time) {
  const list = view.intervals(index);
  const near = EDGE / view.scale;
  const within = intervalAt(list, time);
  const touched = within ?? intervalAt(list, time - near) ?? intervalAt(list, time + near);
  const edge = touched?.lease ? edgeAt(touched, time, near) : null;
  return { interval: edge ? touched : within, edge };
}

// A bar that is too narrow for two handles keeps that of its end.
function edgeAt({ start, end }, time, near) {
  if (Math.abs(end - time) <= near) return "end";
  return Math.abs(start - time) <= near && end - start > 3 * near ? "start" : null;
}

/** The client rectangle of what an overlay marks, as far as it is in sight of the view. */
export function anchorOf(view, overlay) {
  const { size } = view;
  const box = view.element.getBoundingClientRect();
  const clampX = (x) => Math.min(box.left + size.width, Math.max(box.left + size.left, x));
  const start = clampX(view.xOf(overlay.start));
  const end = clampX(view.xOf(overlay.end));
  const [top, bottom] = rowsSpan(view, overlay.place === "rows" ? overlay.rows : [], box)
    ?? [box.top + size.axis, box.top + size.top];
  return new DOMRect(Math.min(start, end), top, Math.max(1, end - start), Math.max(1, bottom - top));
}

function rowsSpan(view, ids, box) {
  const { size } = view;
  const items = ids.map((id) => view.data.indexOf(id)).filter((index) => index !== null)
    .map((index) => itemOfRow(view.layout, index)).filter(Boolean);
  const tops = items.map(({ y }) => size.top + y - view.element.scrollTop);
  if (!tops.length) return null;
  const clampY = (y) => Math.min(box.bottom, Math.max(box.top + size.top, box.top + y));
  return [clampY(Math.min(...tops)), clampY(Math.max(...tops) + size.row)];
}
