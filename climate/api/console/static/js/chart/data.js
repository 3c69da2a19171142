// Data of the calendar: blocks of rows by window, and the band. Fetches what is in sight, keeps what was fetched.

import { get, query } from "../api.js";
import { iso } from "../time.js";
import { cut, decodeBuckets, decodeIntervals, joinSteps, joinWindows, touches } from "./intervals.js";

const ROWS = 50; // rows of a block of intervals
const STRIPS = 200; // rows of a block of buckets
const PARALLEL = 4; // requests at a time: a browser has six connections to a site over HTTP/1.1
const KEPT = 400; // blocks in memory

/**
 * Blocks of the calendar. Events: "data" (something arrived or failed; detail `{rows: boolean}`), "shape" (the number
 * of rows or their groups changed).
 */
export class CalendarData extends EventTarget {
  constructor() {
    super();
    this.reset({});
  }

  /** Forget everything and use other parameters: `{type, properties, q, groupBy, whose, resolution, chunk, band}`. */
  reset(settings) {
    this.names = new Map();
    this.indexes = new Map();
    this.total = null;
    this.groups = null;
    this.shapeText = "";
    this.zoom(settings);
    this.before = null;
  }

  /** Use other windows or buckets for the same rows. Until they are here, what was loaded before stands in. */
  zoom(settings) {
    for (const block of this.blocks?.values() ?? []) block.abort?.abort();
    this.before = this.blocks && { blocks: this.blocks, settings: this.settings, rows: this.rowsPerBlock };
    this.settings = settings;
    this.blocks = new Map();
    this.joined = new Map();
    this.bandSteps = null;
    this.error = null;
    this.wanted = [];
    this.running = 0;
    this.generation = (this.generation || 0) + 1;
  }

  get rowsPerBlock() {
    return this.settings?.resolution ? STRIPS : ROWS;
  }

  /**
   * Fetch what is missing of these rows and windows; abort requests for anything else.
   * @param {number[][]} ranges `[first, last]` row
   * @param {number[]} starts of the windows
   */
  want(ranges, starts) {
    const keys = [];
    if (this.settings.band) for (const start of starts) keys.push({ key: `band ${start}`, start, band: true });
    for (const number of this.#blockNumbers(ranges)) {
      for (const start of starts) keys.push({ key: `${number} ${start}`, start, number });
    }
    this.wanted = keys;
    const names = new Set(keys.map(({ key }) => key));
    for (const [key, block] of this.blocks) {
      if (block.state === "loading" && !names.has(key)) this.#drop(key, block);
    }
    this.#pump();
  }

  #blockNumbers(ranges) {
    if (this.total === null) return [0];
    const numbers = new Set();
    for (const [first, last] of ranges) {
      for (let row = Math.floor(first / this.rowsPerBlock); row * this.rowsPerBlock <= last; row += 1) numbers.add(row);
    }
    return numbers;
  }

  #drop(key, block) {
    block.abort.abort();
    this.running -= 1;
    if (block.old) this.blocks.set(key, { ...block.old, stale: true });
    else this.blocks.delete(key);
  }

  #pump() {
    for (const item of this.wanted) {
      if (this.running >= PARALLEL) return;
      const block = this.blocks.get(item.key);
      if (!block || block.stale) this.#load(item, block);
    }
  }

  async #load(item, old) {
    const abort = new AbortController();
    const block = { ...item, state: "loading", since: Date.now(), abort, old: old?.state === "ready" ? old : null };
    this.blocks.set(item.key, block);
    this.running += 1;
    const { generation } = this;
    try {
      const body = await get(item.band ? this.#bandPath(item) : this.#rowsPath(item), { signal: abort.signal });
      if (this.blocks.get(item.key) !== block) return;
      this.#accept(item, body);
    } catch (error) {
      if (this.blocks.get(item.key) !== block) return;
      this.blocks.set(item.key, { ...item, state: "failed", error, old: block.old });
      if (!item.band && this.total === null) this.error = error;
    }
    if (generation !== this.generation) return;
    this.running -= 1;
    this.dispatchEvent(new CustomEvent("data", { detail: { rows: !item.band } }));
    this.#pump();
  }

  #rowsPath({ start, number }) {
    const { type, properties, q, groupBy, whose, resolution, chunk } = this.settings;
    return `/v2/calendar${query({
      resource_type: type, start: iso(new Date(start)), end: iso(new Date(start + chunk)),
      properties: properties && JSON.stringify(properties), q, group_by: groupBy, sort: "name",
      offset: number * this.rowsPerBlock, limit: this.rowsPerBlock, resolution, whose: whose === "all" ? "all" : null,
    })}`;
  }

  #bandPath({ start }) {
    const { type, properties, chunk, band } = this.settings;
    return `/v2/availability${query({
      resource_type: type, start: iso(new Date(start)), end: iso(new Date(start + chunk)), resolution: band,
      params: properties && JSON.stringify({ resource_properties: properties }),
    })}`;
  }

  #accept(item, body) {
    this.joined.clear();
    if (item.band) {
      const steps = body.steps.map((step) => ({ ...step, start: Date.parse(step.start), end: Date.parse(step.end) }));
      this.blocks.set(item.key, { ...item, state: "ready", steps });
      this.bandSteps = null;
      return;
    }
    this.error = null;
    const first = item.number * this.rowsPerBlock;
    const rows = body.rows.map((row) => this.#row(row, body));
    this.blocks.set(item.key, { ...item, state: "ready", rows, first, version: body.version });
    body.rows.forEach((row, index) => this.#name(first + index, row));
    this.#shape(body);
    this.#evict();
  }

  #row({ x, b, own }, { start, resolution, leases }) {
    const from = Date.parse(start);
    return b === undefined ? decodeIntervals(x || [], from, leases || []) : decodeBuckets(b, own, from, resolution);
  }

  #name(index, { id, name, state, group = null }) {
    this.names.set(index, { id, name, state, group, index });
    this.indexes.set(id, index);
  }

  #shape({ total, groups }) {
    const text = JSON.stringify(groups?.map(({ name, first, rows }) => [name, first, rows]) ?? null);
    const changed = total !== this.total || text !== this.shapeText;
    this.total = total;
    this.groups = groups ?? null;
    this.shapeText = text;
    if (changed) this.dispatchEvent(new Event("shape"));
  }

  // The map keeps the order of insertion, so the oldest blocks go first.
  #evict() {
    const needed = new Set(this.wanted.map(({ key }) => key));
    for (const [key, block] of this.blocks) {
      if (this.blocks.size <= KEPT) return;
      if (block.state !== "loading" && !needed.has(key)) this.blocks.delete(key);
    }
  }

  /** Mark what the windows touch as out of date; what is in sight stays drawn until the new data is there. */
  invalidate(windows) {
    for (const [key, block] of this.blocks) {
      if (!touches(windows, block.start, block.start + this.settings.chunk)) continue;
      if (block.state === "loading") this.#drop(key, block);
      else this.blocks.set(key, { ...block, stale: true });
    }
    const needed = new Set(this.wanted.map(({ key }) => key));
    for (const [key, block] of this.blocks) if (block.stale && !needed.has(key)) this.blocks.delete(key);
    this.#pump();
  }

  /** Load the failed blocks in sight again. */
  retry() {
    for (const { key } of this.wanted) {
      const block = this.blocks.get(key);
      if (block?.state === "failed") this.blocks.set(key, { ...block, stale: true });
    }
    this.#pump();
  }

  /** `{id, name, group, state, index}` of a row; null until it is loaded. */
  row(index) {
    return this.names.get(index) ?? null;
  }

  /** The number of the row with this id; null if it was never loaded. */
  indexOf(id) {
    return this.indexes.get(String(id)) ?? null;
  }

  /** The state of a row's data in a window: "ready", "loading", "late" (after a second), "failed" or "absent". */
  stateOf(index, start) {
    const block = this.blocks.get(`${Math.floor(index / this.rowsPerBlock)} ${start}`);
    if (!block) return "absent";
    if (block.state === "ready" || block.old) return "ready";
    if (block.state === "failed") return block.stale ? "loading" : "failed";
    return Date.now() - block.since > 1000 ? "late" : "loading";
  }

  /** The intervals of a row over consecutive windows. */
  intervals(index, starts) {
    if (starts !== this.joinedStarts) this.joined.clear();
    this.joinedStarts = starts;
    let list = this.joined.get(index);
    if (!list) this.joined.set(index, (list = this.#intervals(index, starts)));
    return list;
  }

  #intervals(index, starts) {
    const number = Math.floor(index / this.rowsPerBlock);
    const windows = [];
    for (const start of starts) {
      const block = this.blocks.get(`${number} ${start}`);
      const rows = block?.rows ?? block?.old?.rows;
      const list = rows ? rows[index - number * this.rowsPerBlock] ?? [] : this.#earlier(index, start);
      windows.push({ start, list });
    }
    return joinWindows(windows);
  }

  // What another zoom level knew of a row in a window.
  #earlier(index, start) {
    if (!this.before) return [];
    const { blocks, settings, rows } = this.before;
    const end = start + this.settings.chunk;
    const number = Math.floor(index / rows);
    const known = [...blocks.values()].filter((block) => block.number === number && (block.rows ?? block.old?.rows));
    const lists = known.filter((block) => block.start < end && block.start + settings.chunk > start)
      .sort((a, b) => a.start - b.start)
      .map((block) => ({ start: block.start, list: (block.rows ?? block.old.rows)[index - number * rows] ?? [] }));
    return cut(lists.length ? joinWindows(lists) : [], start, end);
  }

  /** The steps of the band in the loaded windows among `starts`. */
  steps(starts) {
    if (!this.bandSteps || this.bandSteps.starts !== starts) {
      const lists = starts.map((start) => {
        const block = this.blocks.get(`band ${start}`);
        return block?.steps ?? block?.old?.steps ?? this.#earlierSteps(start);
      });
      this.bandSteps = { starts, steps: joinSteps(lists) };
    }
    return this.bandSteps.steps;
  }

  #earlierSteps(start) {
    if (!this.before) return [];
    const lists = [...this.before.blocks.values()].filter(({ band }) => band).sort((a, b) => a.start - b.start)
      .map((block) => block.steps ?? block.old?.steps ?? []);
    return cut(lists.flat(), start, start + this.settings.chunk);
  }

  /** The state of the band in a window, as `stateOf`; "none": this type has no band. */
  bandState(start) {
    if (!this.settings.band) return "none";
    const block = this.blocks.get(`band ${start}`);
    if (!block) return "absent";
    if (block.state === "ready" || block.old) return "ready";
    return block.state === "failed" && !block.stale ? "failed" : "loading";
  }

  /** Abort all requests. */
  stop() {
    for (const block of this.blocks.values()) block.abort?.abort();
    this.blocks.clear();
    this.wanted = [];
  }
}
