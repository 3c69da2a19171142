// Decodes and combines what the service says about rows. Pure functions; times are epoch milliseconds, UTC.

/** What occupies a row; the numbers are those of `GET /v2/calendar`. */
export const KIND = { TAKEN: 0, OWN: 1, CLEANING: 2, CLOSED: 3, HELD: 4, PREPARING: 5, SHARED: 6 };

/**
 * Decode the flat list of a row into intervals `{start, end, kind, lease, tenths}`, sorted by start.
 * @param {number[]} x `offset, length, kind` in seconds; own: then an index into `leases`; shared: then tenths
 * @param {number} start of the window
 * @param {object[]} leases
 */
export function decodeIntervals(x, start, leases) {
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

/**
 * Join the intervals of consecutive windows: what a window cut is whole again.
 * @param {{start: number, list: object[]}[]} windows
 */
export function joinWindows(windows) {
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

/** Decode buckets into intervals of equal share: `{start, end, kind, tenths}`; nothing where free throughout. */
export function decodeBuckets(text, own, start, resolution) {
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

/** The steps of the band, sorted: `{start, end, free}`; equal neighbours joined. */
export function joinSteps(lists) {
  const steps = [];
  for (const { start, end, free } of lists.flat()) {
    const last = steps[steps.length - 1];
    if (last && last.end === start && last.free === free) last.end = end;
    else steps.push({ start, end, free });
  }
  return steps;
}

/** The least number free at any moment from `start` to `end`; null where that is unknown. */
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

/** Those of `list` that overlap `start` to `end`, cut to it. */
export function cut(list, start, end) {
  return list.filter((item) => item.start < end && item.end > start)
    .map((item) => ({ ...item, start: Math.max(start, item.start), end: Math.min(end, item.end) }));
}

/** Whether any of `windows` overlaps `start` to `end`. */
export function touches(windows, start, end) {
  return windows.some((window) => window.start < end && window.end > start);
}
