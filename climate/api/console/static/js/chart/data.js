// Data of the chart: which windows and rows to fetch, when, and how the API encodes intervals.

import { get, query } from "../api.js";
import { iso } from "../time.js";

const ROWS = 50; // rows of a block of intervals
const STRIPS = 200; // rows of a block of buckets
const PARALLEL = 4; // requests at a time: a browser has six connections to a site over HTTP/1.1
const KEPT = 400; // blocks in memory

export class CalendarData extends EventTarget {
  constructor() {
    super();
    this.reset({});
  }

  reset(settings) {
    this.names = new Map();
    this.indexes = new Map();
    this.total = null;
    this.reservable = null;
    this.groups = null;
    this.shapeText = "";
    this.zoom(settings);
    this.before = null;
  }

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

  #shape({ total, reservable, groups }) {
    const text = JSON.stringify(groups?.map(({ name, first, rows }) => [name, first, rows]) ?? null);
    const changed = total !== this.total || reservable !== this.reservable || text !== this.shapeText;
    this.total = total;
    this.reservable = reservable;
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

  retry() {
    for (const { key } of this.wanted) {
      const block = this.blocks.get(key);
      if (block?.state === "failed") this.blocks.set(key, { ...block, stale: true });
    }
    this.#pump();
  }

  row(index) {
    return this.names.get(index) ?? null;
  }

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

  bandState(start) {
    if (!this.settings.band) return "none";
    const block = this.blocks.get(`band ${start}`);
    if (!block) return "absent";
    if (block.state === "ready" || block.old) return "ready";
    return block.state === "failed" && !block.stale ? "failed" : "loading";
  }

  stop() {
    for (const block of this.blocks.values()) block.abort?.abort();
    this.blocks.clear();
    this.wanted = [];
  }
}

// Decodes and combines what the service says about rows.

export const KIND = { TAKEN: 0, OWN: 1, CLEANING: 2, CLOSED: 3, HELD: 4, PREPARING: 5, SHARED: 6 };

function decodeIntervals(x, start, leases) {
  const list = [];
  for (let at = 0; at < x.length; at += 3) {
    const kind = x[at + 2];
    const from = start + x[at] * 1000;
    const interval = { start: from, end: from + x[at + 1] * 1000, kind, lease: null, tenths: 0 };
    if (kind === KIND.OWN) interval.lease = leases[x[at + 3]] || null;
    if (kind === KIND.SHARED) interval.tenths = x[at + 3];
    if (kind === KIND.OWN || kind === KIND.SHARED) at += 1;
    list.push(interval);
  }
  return list.sort((a, b) => a.start - b.start || a.kind - b.kind);
}

function joinWindows(windows) {
  if (windows.length === 1) return windows[0].list;
  const joined = [];
  for (const { start, list } of windows) {
    for (const interval of list) {
      const reaches = (item) => item.end === start && same(item, interval);
      const before = interval.start === start ? joined.findIndex(reaches) : -1;
      if (before < 0) joined.push(interval);
      else joined[before] = { ...joined[before], end: interval.end };
    }
  }
  return joined;
}

function same(one, other) {
  return one.kind === other.kind && one.lease?.id === other.lease?.id && one.tenths === other.tenths;
}

/** The interval at `time`: an own one before others, null where the row is free. */
export function intervalAt(list, time) {
  let result = null;
  for (const interval of list) {
    if (interval.start > time) break;
    if (interval.end > time && (!result || interval.kind === KIND.OWN)) result = interval;
  }
  return result;
}

/** The gap between intervals at `time`, cut to `from` and `to`. */
export function gapAt(list, time, from, to) {
  let start = from;
  let end = to;
  for (const interval of list) {
    if (interval.end <= time) start = Math.max(start, interval.end);
    else if (interval.start > time) end = Math.min(end, interval.start);
  }
  return { start, end };
}

/** Intervals and gaps from `from` to `to`, in order: gaps have the kind null. */
export function cellsOf(list, from, to) {
  const cells = [];
  let reached = from;
  for (const interval of list) {
    if (interval.end <= from || interval.start >= to) continue;
    if (interval.start > reached) cells.push({ start: reached, end: interval.start, kind: null, lease: null });
    cells.push(interval);
    reached = Math.max(reached, interval.end);
  }
  if (reached < to) cells.push({ start: reached, end: to, kind: null, lease: null });
  return cells;
}

function decodeBuckets(text, own, start, resolution) {
  const list = [];
  const step = resolution * 1000;
  for (let index = 0; index < text.length; index += 1) {
    const mine = own ? own[index] === "1" : false;
    const share = text.charCodeAt(index) - 48;
    if (!share && !mine) continue;
    const kind = mine ? KIND.OWN : share === 9 ? KIND.TAKEN : KIND.SHARED;
    const from = start + index * step;
    const last = list[list.length - 1];
    if (last && last.end === from && last.kind === kind && last.share === share) last.end = from + step;
    else list.push({ start: from, end: from + step, kind, lease: null, share, tenths: Math.round((share * 10) / 9) });
  }
  return list;
}

function joinSteps(lists) {
  const steps = [];
  for (const { start, end, free } of lists.flat()) {
    const last = steps[steps.length - 1];
    if (last && last.end === start && last.free === free) last.end = end;
    else steps.push({ start, end, free });
  }
  return steps;
}

export function leastFreeIn(steps, start, end) {
  let least = null;
  let reached = start;
  for (const step of steps) {
    if (step.end <= start || step.start >= end) continue;
    if (step.start > reached) return null;
    reached = step.end;
    least = least === null ? step.free : Math.min(least, step.free);
  }
  return reached >= end ? least : null;
}

export function cut(list, start, end) {
  return list.filter((item) => item.start < end && item.end > start)
    .map((item) => ({ ...item, start: Math.max(start, item.start), end: Math.min(end, item.end) }));
}

function touches(windows, start, end) {
  return windows.some((window) => window.start < end && window.end > start);
}

// How fast frames come while the calendar moves.

const LATE = 25; // ms: a frame that took longer came late
const SAMPLE = 20; // frames
const MANY = 4; // late frames of a sample

/** Whether a canvas at full resolution is too slow to move. */
export class Pace {
  constructor() {
    this.slow = false;
    this.last = 0;
    this.all = 0;
    this.late = 0;
  }

  frame(time, moving) {
    if (moving && this.last) this.#count(time - this.last);
    this.last = moving ? time : 0;
  }

  fliesPast(y, x) {
    const [beforeY, beforeX] = this.place ?? [y, x];
    this.place = [y, x];
    return Math.abs(y - beforeY) + Math.abs(x - beforeX) > 1;
  }

  #count(milliseconds) {
    this.all += 1;
    if (milliseconds > LATE) this.late += 1;
    if (this.all < SAMPLE) return;
    this.slow ||= this.late > MANY;
    this.all = 0;
    this.late = 0;
  }
}
