// The calendar: one canvas inside a scrolled element, and a grid for assistive technology at the same places.

import { CalendarData, gapAt, leastFreeIn, Pace } from "../chart/data.js";
import { itemOfRow, itemsBetween, layOut, palette, rowRanges } from "../chart/drawing.js";
import { paint } from "../chart/paint.js";
import { debounce, h } from "../dom.js";
import { midnight, offset, serverNow } from "../time.js";
import { anchorOf, GridCells, hitAt, Keys, measure } from "./grid.js";
import { chunkStarts, level, nearestZoom, nominalScale, snapTo } from "./scale.js";

const SCREENS = 8; // screens of time on either side that the element can scroll natively
const REST = 120; // ms without movement until the view rests
const LATE_DATA = 1100; // ms after which the picture says that data is still loading

/**
 * The calendar of a resource type. Times are epoch milliseconds, UTC. Events: "viewchange" (scrolled or zoomed),
 * "datachange", "statechange", "activate" (Enter or click, detail = hit), "gridkey" (before browsing keys).
 */
export class CalendarView extends EventTarget {
  constructor(state) {
    super();
    this.state = {
      resourceType: "physical:host", properties: null, amount: 1, duration: 3600, groupBy: null, q: "", zoom: "week",
      from: midnight(serverNow()).getTime(), whose: null, density: "rows", folded: new Set(), ...state,
    };
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.grid = new GridCells(this);
    this.sticky = h("div", { class: "calendar-sticky", role: "presentation" }, this.canvas, this.grid.element);
    this.rem = h("span", { class: "calendar-rem", "aria-hidden": "true" });
    this.sheet = h("div", { class: "calendar-sheet", role: "presentation" }, this.sticky, this.rem);
    const grid = { role: "grid", tabindex: "0", "aria-label": "Calendar" };
    this.element = h("div", { class: "calendar-scroll", ...grid }, this.sheet);
    this.data = new CalendarData();
    this.overlay = null;
    this.scale = 0;
    this.frame = 0;
    this.moving = false;
    this.pace = new Pace();
    this.rest = debounce(() => this.#rested(), REST);
    this.late = debounce(() => this.invalidate(), LATE_DATA);
    this.keys = new Keys(this);
    this.#listen();
  }

  #listen() {
    this.element.addEventListener("scroll", () => this.#moved(), { passive: true });
    this.element.addEventListener("click", (event) => this.#clicked(event));
    this.data.addEventListener("data", () => this.#arrived());
    this.data.addEventListener("shape", () => this.#reshape());
    this.sizes = new ResizeObserver(() => this.#resized());
    const recolour = () => { this.colours = null; this.invalidate(); };
    this.ends = new AbortController();
    const { signal } = this.ends;
    document.addEventListener("themechange", recolour, { signal });
    matchMedia("(forced-colors: active)").addEventListener("change", recolour, { signal });
    matchMedia("(prefers-contrast: more)").addEventListener("change", recolour, { signal });
    this.clock = setInterval(() => this.invalidate(), 15_000);
  }

  start() {
    this.sizes.observe(this.element);
    this.sizes.observe(this.rem); // The size of the text may change while that of the element does not.
    this.#resized();
    this.#configure();
  }

  destroy() {
    this.sizes.disconnect();
    this.ends.abort();
    this.data.stop();
    clearInterval(this.clock);
    cancelAnimationFrame(this.frame);
    this.rest.cancel();
    this.late.cancel();
    clearInterval(this.fetching);
  }

  // Geometry

  #resized() {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !height) return;
    const from = this.scale ? this.from : this.state.from;
    const nominal = !this.scale || Math.abs(this.scale / nominalScale(this.state.zoom, this.size.body) - 1) < 1e-6;
    this.size = measure(this.element, this.state.density);
    if (nominal) this.scale = nominalScale(this.state.zoom, this.size.body);
    this.#reshape();
    this.#place(from);
    this.#moved();
  }

  #reshape() {
    if (!this.size) return;
    const { total, groups, error } = this.data;
    const { row, group, top, left, body, height, width } = this.size;
    // Until the number of rows is known, empty ones fill the screen.
    const expected = error ? 0 : Math.ceil((height - top) / row);
    const { folded } = this.state;
    this.layout = layOut({ total: total ?? expected, groups, folded, rowHeight: row, groupHeight: group });
    this.sheet.style.width = `${left + body * (1 + 2 * SCREENS)}px`;
    this.sheet.style.height = `${Math.max(height, top + this.layout.height)}px`;
    this.sticky.style.width = `${width}px`;
    this.sticky.style.height = `${height}px`;
    this.invalidate();
  }

  get from() {
    return this.origin + this.element.scrollLeft / this.scale;
  }

  get to() {
    return this.from + this.size.body / this.scale;
  }

  // The horizontal scroll position only counts from `origin`, so the axis has no end.
  #place(from) {
    const middle = Math.round(this.size.body * SCREENS);
    if (Math.abs(this.element.scrollLeft - middle) > this.size.body * (SCREENS - 2)) this.element.scrollLeft = middle;
    this.origin = from - this.element.scrollLeft / this.scale;
  }

  goTo(time) {
    this.#place(time);
    this.#moved();
  }

  /** Change px per ms so that the time at `clientX` stays where it is. */
  setScale(scale, clientX) {
    const { body } = this.size;
    const limited = Math.min(nominalScale("hour", body) * 3, Math.max(nominalScale("quarter", body), scale));
    const at = this.timeAt(clientX);
    const zoom = nearestZoom(limited, body);
    const x = clientX - this.element.getBoundingClientRect().left - this.size.left;
    this.scale = limited;
    this.#place(at - x / limited);
    if (zoom !== this.state.zoom) this.setState({ zoom, keepScale: true });
    else this.#moved();
  }

  zoomTo(zoom, clientX) {
    this.setScale(nominalScale(zoom, this.size.body), clientX);
  }

  timeAt(clientX) {
    const x = clientX - this.element.getBoundingClientRect().left - this.size.left;
    return Math.round(this.from + x / this.scale);
  }

  xOf(time) {
    return this.element.getBoundingClientRect().left + this.localX(time);
  }

  localX(time) {
    return this.size.left + (time - this.from) * this.scale;
  }

  snap(time, { exact = false } = {}) {
    return snapTo(time, exact ? 60_000 : level(this.state.zoom).snap);
  }

  // State

  setState({ keepScale = false, ...part }) {
    const before = this.state;
    this.state = { ...before, ...part };
    const differs = (...keys) => keys.some((key) => JSON.stringify(before[key]) !== JSON.stringify(this.state[key]));
    if (this.size) {
      const from = part.from ?? this.from;
      if (differs("zoom") && !keepScale) this.scale = nominalScale(this.state.zoom, this.size.body);
      if (differs("density")) this.size = measure(this.element, this.state.density);
      this.#place(from);
      const rows = differs("resourceType", "properties", "groupBy", "q", "whose", "density");
      if (rows || level(before.zoom) !== level(this.state.zoom)) this.#configure();
      if (rows) this.element.scrollTop = 0;
      this.#reshape();
      this.#moved();
    }
    this.dispatchEvent(new Event("statechange"));
  }

  /** Set the parameters without which the service cannot count free units: titles by type. */
  setNeeds(needs) {
    this.needsByType = needs;
    if (this.size && this.state.resourceType in needs) this.#configure();
  }

  get needs() {
    return this.needsByType?.[this.state.resourceType] ?? null;
  }

  #configure() {
    const { resourceType, properties, q, groupBy, whose, zoom, density } = this.state;
    const { resolution, chunk, band, span } = level(zoom);
    const overview = density === "overview" ? Math.max(300, Math.ceil(span / 60_000_000) * 300) : 0;
    const settings = {
      type: resourceType, properties, q, groupBy, whose, chunk,
      band: this.needs ? 0 : band, resolution: resolution || overview,
    };
    const rows = JSON.stringify([resourceType, properties, q, groupBy, whose]);
    this.shift = offset(serverNow());
    if (rows === this.rows) this.data.zoom(settings);
    else this.data.reset(settings);
    this.rows = rows;
    this.#reshape();
    this.#fetch();
  }

  refresh() {
    this.changed([{ start: -Infinity, end: Infinity }]);
  }

  changed(windows) {
    this.data.invalidate(windows);
    this.#fetch();
    this.dispatchEvent(new CustomEvent("datachange", { detail: { windows } }));
  }

  #arrived() {
    if (this.data.total === null) this.#reshape();
    this.invalidate();
    this.rest();
    const windows = [{ start: this.from, end: this.to }];
    this.dispatchEvent(new CustomEvent("datachange", { detail: { windows, loaded: true } }));
  }

  // Movement

  #moved() {
    if (!this.moving) {
      this.moving = true;
      this.fetching = setInterval(() => this.#fetchOnTheWay(), 100);
    }
    this.grid.element.classList.toggle("moving", !this.grid.isInPlace());
    this.#request();
    this.rest();
  }

  #rested() {
    clearInterval(this.fetching);
    this.moving = false;
    if (!this.size) return;
    this.#place(this.from);
    this.state.from = Math.round(this.from);
    this.#fetch();
    this.grid.rebuild();
    this.invalidate();
    this.dispatchEvent(new Event("rest"));
  }

  get windows() {
    const { from } = this;
    const { chunk } = level(this.state.zoom);
    const starts = chunkStarts(from, from + this.size.body / this.scale, chunk, this.shift ?? 0);
    const old = this.lastWindows;
    if (old && old.length === starts.length && old[0] === starts[0] && this.lastChunk === chunk) return old;
    this.lastChunk = chunk;
    this.lastWindows = starts;
    return starts;
  }

  itemsInSight() {
    const top = this.element.scrollTop;
    return itemsBetween(this.layout, top, top + this.size.height - this.size.top);
  }

  // What only flies past is not fetched: the service would work for rows that are gone when they arrive.
  #fetchOnTheWay() {
    const { height, body } = this.size;
    if (!this.pace.fliesPast(this.element.scrollTop / height, (this.from * this.scale) / body)) this.#fetch();
  }

  #fetch() {
    if (!this.size || !this.layout) return;
    const ranges = rowRanges(this.itemsInSight());
    this.data.want(ranges, this.windows);
    this.late();
  }

  // Painting

  invalidate() {
    this.painted = null;
    this.#request();
  }

  #request() {
    this.frame ||= requestAnimationFrame((time) => this.#paint(time));
  }

  #paint(time) {
    this.frame = 0;
    if (!this.size) return;
    this.pace.frame(time, this.moving);
    const ratio = this.moving && this.pace.slow ? 1 : this.size.ratio;
    const { width, height } = this.size;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.painted = null;
    }
    this.colours ??= palette(this.element);
    const context = this.canvas.getContext("2d", { alpha: false });
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint(context, this, this.#unchanged());
    if (this.moving) this.dispatchEvent(new Event("viewchange"));
  }

  // Scrolling in one direction leaves a part of the picture as it is.
  #unchanged() {
    const { painted, scale, layout } = this;
    const now = { from: this.from, scale, scrollTop: this.element.scrollTop, layout };
    this.painted = now;
    if (!painted) return { names: false, axis: false };
    return {
      names: painted.scrollTop === now.scrollTop && painted.layout === layout,
      axis: painted.from === now.from && painted.scale === scale,
    };
  }

  setOverlay(overlay) {
    this.overlay = overlay;
    this.invalidate();
  }

  anchor(overlay) {
    return anchorOf(this, overlay);
  }

  // Reading

  intervals(index) {
    return this.data.intervals(index, this.windows);
  }

  bandSteps() {
    return this.data.steps(this.windows);
  }

  leastFree(start, end) {
    return leastFreeIn(this.bandSteps(), start, end);
  }

  hit(clientX, clientY) {
    return hitAt(this, clientX, clientY);
  }

  gap(index, time) {
    return gapAt(this.intervals(index), time, this.from, this.to);
  }

  get focus() {
    return this.grid.focus();
  }

  // Moving to something

  revealTime(start, end = start) {
    const margin = 24 / this.scale;
    if (start >= this.from + margin && end <= this.to - margin) return;
    const width = this.size.body / this.scale;
    if (end - start > width - 2 * margin || start < this.from + margin) this.goTo(start - margin);
    else this.goTo(end + margin - width);
  }

  revealRow(id) {
    const index = this.data.indexOf(id);
    const item = index === null ? null : itemOfRow(this.layout, index);
    if (item) this.revealItem(item);
    return Boolean(item);
  }

  revealItem({ y, height }) {
    const room = this.size.height - this.size.top;
    const { scrollTop } = this.element;
    if (y < scrollTop) this.element.scrollTop = y;
    else if (y + height > scrollTop + room) this.element.scrollTop = y + height - room;
  }

  toggleGroup({ name }) {
    const folded = new Set(this.state.folded);
    if (!folded.delete(name)) folded.add(name);
    this.state.folded = folded;
    this.#reshape();
    this.#moved();
    this.dispatchEvent(new Event("statechange"));
  }

  #clicked(event) {
    // Assistive technology clicks a cell; a pointer always hits the canvas.
    const cell = event.target.closest("[role=gridcell], [role=rowheader]");
    const hit = cell ? this.grid.hitOf(cell) : this.hit(event.clientX, event.clientY);
    this.grid.focusHit(hit);
    this.activate(hit);
  }

  activate(hit) {
    const event = new CustomEvent("activate", { detail: hit, cancelable: true });
    if (!this.dispatchEvent(event)) return;
    if (hit.area === "group") this.toggleGroup(hit.group);
    if (hit.area === "row" && this.data.stateOf(hit.row.index, this.windows[0]) === "failed") this.data.retry();
    if (hit.area === "band" && this.windows.some((start) => this.data.bandState(start) === "failed")) this.data.retry();
  }
}
