// The time axis: zoom levels, snapping, ticks. Pure functions; times are epoch milliseconds, UTC.

import { atWall, clock, fields, midnight, offset } from "../time.js";

export const MINUTE = 60_000;
export const HOUR = 3_600_000;
export const DAY = 86_400_000;

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

/** The settings of a zoom level. */
export function level(zoom) {
  return LEVELS[zoom] || LEVELS.week;
}

/** The px per millisecond of a zoom level on a time axis of `width` px. */
export function nominalScale(zoom, width) {
  const { span, least } = level(zoom);
  return Math.max(least, width / span);
}

/** The zoom level whose scale is nearest to `scale`. */
export function nearestZoom(scale, width) {
  const distance = (zoom) => Math.abs(Math.log(nominalScale(zoom, width) / scale));
  return ZOOMS.reduce((best, zoom) => (distance(zoom) < distance(best) ? zoom : best));
}

/** The zoom level that is `step` levels wider (negative: closer). */
export function nextZoom(zoom, step) {
  return ZOOMS[Math.min(ZOOMS.length - 1, Math.max(0, ZOOMS.indexOf(zoom) + step))];
}

/** The start of the request window that `time` lies in. `shift`: ms by which local days lead UTC days. */
export function chunkStart(time, chunk, shift) {
  return Math.floor((time + shift) / chunk) * chunk - shift;
}

/** The starts of the request windows that cover `from` to `to`. */
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

/** The moments of the wall clock's 0:00, `hours`:00, 2 x `hours`:00 and so on; a whole day has 24 hours. */
export function wallTimes(from, to, hours) {
  const times = [];
  for (let start = midnight(new Date(from)); start < to; start = midnight(start, 1)) {
    const { year, month, day } = fields(start);
    for (let hour = 0; hour < 24; hour += hours) times.push(atWall(year, month, day, hour).getTime());
  }
  return times.filter((time) => time >= from - DAY && time <= to);
}

/** The local days that touch `from` to `to`: `{start, end, date}`. */
export function days(from, to) {
  const list = [];
  let start = midnight(new Date(from));
  while (start < to) {
    const end = midnight(start, 1);
    list.push({ start: start.getTime(), end: end.getTime(), date: fields(start) });
    start = end;
  }
  return list;
}

/**
 * What the axis shows from `from` to `to`.
 * @param {number} scale px per ms
 * @param {number} room px that a label of five characters needs
 * @param {Date} now the server's clock
 * @returns {{top: object[], bottom: object[], lines: object[], shades: object[], wholeDays: boolean}}
 *   labels `{time, end, text, strong, today}`, lines `{time, strong}`, shades (weekends) `{start, end}`
 */
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
  if (date) return { text: `${date.weekday} ${date.day} ${date.monthName}`, strong: true };
  const text = clock(new Date(time));
  const ambiguous = repeated.some(({ start, end }) => time >= start && time < end);
  if (!ambiguous) return { text };
  return { text: `${text} ${shortOffset(time)}`, short: `${text.slice(0, 2)} ${shortOffset(time)}` };
}

function shortOffset(time) {
  const minutes = Math.round(offset(new Date(time)) / MINUTE);
  const rest = Math.abs(minutes) % 60;
  return `${minutes < 0 ? "\u2212" : "+"}${Math.trunc(Math.abs(minutes) / 60)}${rest ? `:${rest}` : ""}`;
}

/** The spans in which the wall clock shows a time for the first or the second time. */
export function repeatedHours(list) {
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
