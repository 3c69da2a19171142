// The grid that assistive technology reads and the keyboard moves in: transparent cells at the places of the canvas.

import { h } from "../dom.js";
import { serverNow } from "../time.js";
import { cellsOf, cut } from "../chart/intervals.js";
import { itemAt, itemNumber, itemOfRow } from "../chart/layout.js";
import { level } from "./scale.js";
import { cellWords, momentWords, rowWords, spanWords, typeWords } from "./words.js";

/**
 * Cells of the rows in sight. The scrolled element keeps the focus and points at the active cell
 * (aria-activedescendant), so building the cells again never moves the focus.
 */
export class GridCells {
  /** @param {import("./view.js").CalendarView} view */
  constructor(view) {
    this.view = view;
    this.band = h("div", { role: "presentation" });
    this.body = h("div", { class: "calendar-cells-body", role: "presentation" });
    this.element = h("div", { class: "calendar-cells", role: "rowgroup" }, this.band, this.body);
    this.place = null; // {area: "band"|"group"|"row", item, time}
    this.places = new Map();
  }

  /** Build the cells in sight. */
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
    renew(this.band, [this.#bandLine()]);
    renew(this.body, this.#items().map((item) => (item.kind === "group" ? this.#group(item) : this.#row(item))));
    if (this.active) view.element.setAttribute("aria-activedescendant", this.active);
    else view.element.removeAttribute("aria-activedescendant");
  }

  /** Whether the cells are where the canvas shows them. */
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

  #bandLine() {
    const { view } = this;
    const words = typeWords(view.state.resourceType);
    const missing = view.needs ? `; free capacity depends on ${view.needs.join(", ")}` : "";
    const heading = `Any matching ${words.one}, you need ${view.state.amount}${missing}`;
    const { left, axis, band } = view.size;
    const where = { area: "band", item: -1 };
    const label = ({ free, start, end }) => `${free} free, ${spanWords(start, end)}`;
    const cells = this.#bandCells().map((cell) => this.#cell(label(cell), cell, band, where));
    return this.#line({ item: -1, height: band }, axis, this.#header(heading, left, band, where), cells);
  }

  #bandCells() {
    const { view } = this;
    return cut(view.bandSteps(), view.from, view.to);
  }

  #group(item) {
    const { view } = this;
    const { name, rows, free_now: free } = item.group;
    const label = `${name || "none"}, ${free === undefined ? rows : `${free} of ${rows} free now`}`;
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

  /** The span of the windows in sight. */
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

  /** The place that has the focus; at first it is the band, now. */
  current() {
    const { view } = this;
    this.place ??= { area: "band", item: -1, time: Math.max(view.from, Math.min(serverNow().getTime(), view.to - 1)) };
    if (this.place.item >= view.layout.items) this.place = { ...this.place, item: view.layout.items - 1 };
    return this.place;
  }

  /** The intervals and gaps of the focused row over the loaded windows. */
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

  /** Move the focus: `{area, item, time}`; scrolls there. */
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

  /** Move the focus to what the pointer has chosen; nothing is scrolled. */
  focusHit({ area, row, group, time }) {
    const { view } = this;
    if (area === "band") this.place = { area, item: -1, time };
    else if (area === "row") this.place = { area, item: itemOfRow(view.layout, row.index).item, time };
    else if (area === "group") this.place = { area, item: itemOfRow(view.layout, group.first).item, time };
    else return;
    if (area === "group") this.place.item = groupItem(view.layout, group);
    this.rebuild();
  }

  /** The focus as `{area, row, group, interval, time, cell}`. */
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

  /** The hit of a cell that assistive technology has chosen. */
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
