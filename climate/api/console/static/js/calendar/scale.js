// Time and words of the calendar: zoom levels, ticks, the state in the address, what things are called.

import { KIND } from "../chart/data.js";
import { plain } from "../dom.js";
import {
  atWall, clock, day, duration, fields, iso, midnight, moment, offset, offsetName, range, serverNow, shortMoment,
} from "../time.js";

const MINUTE = 60_000;
export const HOUR = 3_600_000;
const DAY = 86_400_000;

/** The zoom levels, from the closest to the widest. */
export const ZOOMS = ["hour", "day", "week", "month", "quarter"];

// `span`: what one screen shows; `least`: px per ms that a narrow screen keeps, so that labels fit;
// `chunk`: the window of one request; `resolution`, `band`: seconds per bucket of rows (0: intervals) and band.
const LEVELS = {
  hour: { span: 12 * HOUR, least: 60 / HOUR, snap: 5 * MINUTE, chunk: 2 * DAY, resolution: 0, band: 300 },
  day: { span: DAY, least: 28 / HOUR, snap: 15 * MINUTE, chunk: 4 * DAY, resolution: 0, band: 900 },
  week: { span: 7 * DAY, least: 44 / DAY, snap: HOUR, chunk: 14 * DAY, resolution: 0, band: 1800 },
  month: { span: 31 * DAY, least: 10 / DAY, snap: 6 * HOUR, chunk: 62 * DAY, resolution: 0, band: 21_600 },
  quarter: { span: 92 * DAY, least: 3 / DAY, snap: DAY, chunk: 184 * DAY, resolution: 86_400, band: 86_400 },
};

export function level(zoom) {
  return LEVELS[zoom] || LEVELS.week;
}

/** The px per millisecond of a zoom level on a time axis of `width` px. */
export function nominalScale(zoom, width) {
  const { span, least } = level(zoom);
  return Math.max(least, width / span);
}

export function nearestZoom(scale, width) {
  const distance = (zoom) => Math.abs(Math.log(nominalScale(zoom, width) / scale));
  return ZOOMS.reduce((best, zoom) => (distance(zoom) < distance(best) ? zoom : best));
}

/** The zoom level that is `step` levels wider (negative: closer). */
export function nextZoom(zoom, step) {
  return ZOOMS[Math.min(ZOOMS.length - 1, Math.max(0, ZOOMS.indexOf(zoom) + step))];
}

function chunkStart(time, chunk, shift) {
  return Math.floor((time + shift) / chunk) * chunk - shift;
}

export function chunkStarts(from, to, chunk, shift) {
  const starts = [];
  for (let time = chunkStart(from, chunk, shift); time < to; time += chunk) starts.push(time);
  return starts;
}

/** Round `time` to the nearest multiple of `step` ms on the wall clock. */
export function snapTo(time, step) {
  if (step <= HOUR) {
    const ahead = offset(new Date(time));
    return Math.round((time + ahead) / step) * step - ahead;
  }
  const edges = wallTimes(time - DAY, time + 2 * DAY, step / HOUR);
  return edges.reduce((best, edge) => (Math.abs(edge - time) < Math.abs(best - time) ? edge : best));
}

function wallTimes(from, to, hours) {
  const times = [];
  for (let start = midnight(new Date(from)); start < to; start = midnight(start, 1)) {
    const { year, month, day } = fields(start);
    for (let hour = 0; hour < 24; hour += hours) times.push(atWall(year, month, day, hour).getTime());
  }
  return times.filter((time) => time >= from - DAY && time <= to);
}

function days(from, to) {
  const list = [];
  let start = midnight(new Date(from));
  while (start < to) {
    const end = midnight(start, 1);
    list.push({ start: start.getTime(), end: end.getTime(), date: fields(start) });
    start = end;
  }
  return list;
}

/** What the axis shows from `from` to `to`. */
export function ticks(from, to, scale, room, now) {
  const dayWidth = DAY * scale;
  const list = days(from, to);
  const shades = dayWidth > 6 ? weekends(list) : [];
  if (dayWidth >= room * 12) return { ...hourTicks(from, to, scale, room, list), shades, wholeDays: false };
  if (dayWidth >= room * 2.2) return { ...dayTicks(list, scale, room, now), shades, wholeDays: false };
  if (dayWidth >= room * 0.55) return { ...weekTicks(list, now, room, dayWidth), shades, wholeDays: true };
  return { ...monthTicks(list, room, dayWidth), shades, wholeDays: true };
}

function weekends(list) {
  return list.filter(({ date }) => date.weekday === "Sat" || date.weekday === "Sun");
}

const STEPS = [0.25, 0.5, 1, 2, 3, 4, 6, 12].map((hours) => hours * HOUR);

// Hours are counted on the wall clock: an hour that the zone skips is not there, a repeated one comes twice.
function hourTicks(from, to, scale, room, list) {
  const step = STEPS.find((size) => size * scale >= room * 1.3) || 12 * HOUR;
  const fine = Math.max(15 * MINUTE, Math.min(HOUR, step / 2));
  const midnights = new Map(list.map((one) => [one.start, one.date]));
  const repeated = repeatedHours(list);
  const top = [];
  const bottom = [];
  const lines = [];
  for (let time = Math.ceil(from / fine) * fine; time < to; time += fine) {
    const wall = time + offset(new Date(time));
    const whole = wall % step === 0;
    lines.push({ time, strong: midnights.has(time) });
    if (!whole) continue;
    top.push({ time, ...hourLabel(time, midnights.get(time), repeated) });
    bottom.push({ time, text: clock(new Date(time), "UTC") });
  }
  return { top: ended(top, step), bottom: ended(bottom, step), lines };
}

// The labels of a repeated hour are closer than others.
function ended(labels, step) {
  return labels.map((label, index) => ({ ...label, end: labels[index + 1]?.time ?? label.time + step }));
}

function hourLabel(time, date, repeated) {
  const day = date && `${date.weekday} ${date.day}`;
  if (date) return { text: `${day} ${date.monthName}`, short: day, strong: true };
  const text = clock(new Date(time));
  const ambiguous = repeated.some(({ start, end }) => time >= start && time < end);
  if (!ambiguous) return { text };
  return { text: `${text} ${shortOffset(time)}`, short: `${text.slice(0, 2)} ${shortOffset(time)}` };
}

function shortOffset(time) {
  const minutes = Math.round(offset(new Date(time)) / MINUTE);
  const rest = Math.abs(minutes) % 60;
  return `${minutes < 0 ? "\u2212" : "+"}${Math.trunc(Math.abs(minutes) / 60)}${rest ? ":" : ""}${rest || ""}`;
}

function repeatedHours(list) {
  return list.filter((one) => one.end - one.start > DAY).map((one) => {
    const back = one.end - one.start - DAY;
    const change = findChange(one.start, one.end);
    return { start: change - back, end: change + back };
  });
}

function findChange(start, end) {
  const before = offset(new Date(start));
  let [low, high] = [start, end];
  while (high - low > MINUTE) {
    const middle = Math.floor((low + high) / 2 / MINUTE) * MINUTE;
    if (offset(new Date(middle)) === before) low = middle;
    else high = middle;
  }
  return high;
}

function dayTicks(list, scale, room, now) {
  const hours = [2, 3, 4, 6, 12].find((size) => size * HOUR * scale >= room * 0.7) || 12;
  const top = list.map((one) => dayLabel(one, now));
  const bottom = [];
  const lines = [];
  for (const { start, end, date } of list) {
    for (let hour = 0; hour < 24; hour += hours) {
      const time = hour ? atWall(date.year, date.month, date.day, hour).getTime() : start;
      if (time >= end) continue;
      lines.push({ time, strong: hour === 0 });
      bottom.push({ time, end: time + hours * HOUR, text: clock(new Date(time), "UTC").replace(/:00$/, "") });
    }
  }
  return { top, bottom, lines };
}

function dayLabel({ start, end, date }, now) {
  const hours = (end - start) / HOUR;
  const length = hours === 24 ? "" : `, ${hours} h`;
  return {
    time: start, end, strong: true, today: now >= start && now < end,
    text: `${date.weekday} ${date.day} ${date.monthName}${length}`, short: `${date.weekday} ${date.day}`,
  };
}

function weekTicks(list, now, room, dayWidth) {
  const every = dayWidth >= room * 0.7 ? 1 : 2;
  const top = list.filter(({ date }, index) => date.weekday === "Mon" || index === 0)
    .map(({ start, date }, index, all) => ({
      time: start, end: all[index + 1]?.start ?? Infinity, strong: true,
      text: `${date.weekday} ${date.day} ${date.monthName}`, short: `${date.day} ${date.monthName}`,
      pinned: date.monthName,
    }));
  const bottom = list.filter(({ date }) => date.day % every === 0 || every === 1).map(({ start, end, date }) => ({
    time: start, end, text: String(date.day), today: now >= start && now < end, center: true,
  }));
  const lines = list.map(({ start, date }) => ({ time: start, strong: date.weekday === "Mon" }));
  return { top, bottom, lines };
}

function monthTicks(list, room, dayWidth) {
  const firsts = list.filter(({ date }, index) => date.day === 1 || index === 0);
  const top = firsts.map(({ start, date }, index) => ({
    time: start, end: firsts[index + 1]?.start ?? Infinity, strong: true,
    text: `${date.monthName} ${date.year}`, short: date.monthName,
  }));
  const mondays = list.filter(({ date }) => date.weekday === "Mon");
  const every = Math.max(1, Math.ceil((room * 0.6) / (7 * dayWidth)));
  const bottom = mondays.filter((_one, index) => index % every === 0)
    .map(({ start, date }) => ({ time: start, end: start + every * 7 * DAY, text: String(date.day) }));
  const lines = [...mondays.map(({ start }) => ({ time: start, strong: false })),
    ...firsts.map(({ start }) => ({ time: start, strong: true }))];
  return { top, bottom, lines };
}

// The state of the calendar in the address, so that a link shows a colleague the same.

const KEYS = ["type", "properties", "amount", "for", "group", "q", "whose", "rows", "zoom", "from"];

/** The state that an address names. */
export function stateOf(params, types, defaults) {
  const zoom = ZOOMS.includes(params.get("zoom")) ? params.get("zoom") : defaults.zoom;
  return {
    resourceType: types.includes(params.get("type")) ? params.get("type") : types[0],
    properties: expression(params.get("properties")),
    amount: positive(params.get("amount")) ?? 1,
    duration: positive(params.get("for")) ?? 3600 * 8,
    groupBy: params.get("group") ?? defaults.groupBy,
    q: params.get("q") ?? "",
    whose: params.get("whose") === "all" ? "all" : null,
    density: params.get("rows") === "overview" ? "overview" : "rows",
    zoom,
    from: timeOf(params.get("from")) ?? defaultFrom(zoom),
  };
}

function expression(text) {
  try {
    const value = JSON.parse(text ?? "null");
    return Array.isArray(value) && value.length ? value : null;
  } catch {
    return null;
  }
}

function positive(text) {
  const number = Number(text);
  return Number.isInteger(number) && number > 0 && number < 1e9 ? number : null;
}

function timeOf(text) {
  const time = Date.parse(text ?? "");
  return Number.isFinite(time) && Math.abs(time) < 8e15 ? time : null;
}

/** Where a zoom level begins when nothing else is said: now is in sight, with some past before it. */
export function defaultFrom(zoom) {
  const now = serverNow();
  if (zoom === "hour" || zoom === "day") return snapTo(now.getTime() - HOUR, 2 * HOUR);
  if (zoom === "week") return midnight(now, -1).getTime();
  return midnight(new Date(now.getTime() - (zoom === "month" ? 3 : 7) * DAY)).getTime();
}

export function queryOf(state, search) {
  const params = new URLSearchParams(search);
  for (const key of KEYS) params.delete(key);
  const values = {
    type: state.resourceType, properties: state.properties && JSON.stringify(state.properties),
    amount: state.amount === 1 ? null : state.amount, for: state.duration === 28_800 ? null : state.duration,
    group: state.groupBy, q: state.q, whose: state.whose, rows: state.density === "overview" ? "overview" : null,
    zoom: state.zoom, from: iso(new Date(state.from)),
  };
  for (const [key, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== "") params.set(key, value);
  }
  return `?${params}`;
}

// What the calendar calls things.

const STATES = {
  ready: "", preparing: "getting ready", off: "off, bookable", set_aside: "set aside", failing: "failing",
};

/** What a row's state is called. */
export function stateWords(state) {
  return STATES[state] ?? plain(state ?? "");
}

const STATUSES = {
  ACTIVE: "running", STARTING: "starting", TERMINATING: "ending", UPDATING: "changing", CREATING: "being created",
  DELETING: "being deleted", ERROR: "failed", TERMINATED: "ended",
};

/** How a lease stands: `{words, look}`; look: "running", "later" or "over". */
export function leaseWords(lease, interval, now = serverNow().getTime()) {
  const start = Date.parse(lease.start ?? "") || interval.start;
  const end = Date.parse(lease.end ?? "") || interval.end;
  const status = lease.status;
  if (status === "TERMINATED" || end <= now) return { words: "ended", look: "over" };
  if (status === "PENDING" || (!STATUSES[status] && start > now)) {
    const near = Math.abs(start - interval.start) < 1000 && day(new Date(start)) === day(new Date(interval.start));
    return { words: `from ${near ? clock(new Date(start)) : shortMoment(new Date(start))}`, look: "later" };
  }
  return { words: STATUSES[status] || "running", look: start > now ? "later" : "running" };
}

const OTHERS = {
  [KIND.TAKEN]: "Taken", [KIND.CLOSED]: "Not bookable", [KIND.HELD]: "Held", [KIND.PREPARING]: "Getting ready",
};

/** What occupies a cell: "free", "taken", "ablation-7, running, degraded". */
export function cellWords({ kind, lease, tenths, start, end, share }) {
  if (kind === null) return "Free";
  if (kind === KIND.OWN && lease) {
    const { words } = leaseWords(lease, { start, end });
    const whose = lease.mine === false ? "of another project, " : "";
    return `${plain(lease.name)}, ${whose}${words}${lease.degraded ? ", degraded" : ""}`;
  }
  if (kind === KIND.OWN) return "Yours";
  if (kind === KIND.CLEANING) return `Cleaning, ${duration((end - start) / 1000)}`;
  if (kind === KIND.SHARED) return `${tenths * 10} % taken${share === undefined ? "" : " of the time"}`;
  return OTHERS[kind];
}

/** A span in the chosen zone: "Tue 14:00 to Tue 22:00, 8 h"; repeated hours carry their offset. */
export function spanWords(start, end) {
  const text = range(new Date(start), new Date(end));
  return `${text}${ambiguity(start, end)}, ${duration((end - start) / 1000)}`;
}

// Near a change of the zone's offset, a time of day alone may mean two moments.
function ambiguity(start, end) {
  const margin = 3 * 3_600_000;
  if (offset(new Date(start - margin)) === offset(new Date(end + margin))) return "";
  const [first, last] = [offsetName(new Date(start)), offsetName(new Date(end))];
  return first === last ? ` (${first})` : ` (${first} to ${last})`;
}

/** A moment in the chosen zone: "Tue 14:00", with the date where that is not enough. */
export function momentWords(time) {
  const date = new Date(time);
  return Math.abs(date - serverNow()) < 6 * 86_400_000 ? shortMoment(date) : moment(date);
}

/** A row as its heading says it: "r1-n06, getting ready". */
export function rowWords({ name, state }) {
  const words = stateWords(state);
  return words ? `${plain(name)}, ${words}` : plain(name);
}
