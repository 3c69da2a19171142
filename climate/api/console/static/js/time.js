// Times: the chosen zone, UTC beside it, and the server's clock.

const KEY = "climate-zone";
const BROWSER_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const formatters = new Map(); // A formatter takes milliseconds to make, so each is made once.
let ahead = 0; // the server's clock minus the browser's, in ms
let chosen = stored();

function stored() {
  try {
    const zone = localStorage.getItem(KEY) || BROWSER_ZONE;
    Intl.DateTimeFormat("en", { timeZone: zone });
    return zone;
  } catch {
    return BROWSER_ZONE;
  }
}

/** The zone in which times are shown, such as "Europe/Berlin". */
export function zone() {
  return chosen;
}

export function chooseZone(text) {
  try {
    if (text) localStorage.setItem(KEY, text);
    else localStorage.removeItem(KEY);
  } catch {
    // Storage is blocked: the choice holds until the page is left.
  }
  chosen = text || BROWSER_ZONE;
  document.dispatchEvent(new CustomEvent("zonechange", { detail: chosen }));
}

export function isZoneChosen() {
  return chosen !== BROWSER_ZONE;
}

/** The place of the zone: "Berlin", "New York", "UTC". */
export function zoneName() {
  return chosen.split("/").pop().replaceAll("_", " ");
}

export function offsetName(date = serverNow()) {
  const minutes = Math.round(offset(date) / 60000);
  if (minutes === 0) return "UTC";
  const rest = Math.abs(minutes) % 60;
  const hours = Math.trunc(Math.abs(minutes) / 60);
  return `UTC${minutes < 0 ? "\u2212" : "+"}${hours}${rest ? ":" : ""}${rest ? two(rest) : ""}`;
}

export function setServerNow(text) {
  ahead = Date.parse(text) - Date.now();
}

export function serverNow() {
  return new Date(Date.now() + ahead);
}

export function fields(date, timeZone = chosen) {
  const wall = new Date(date.getTime() + offset(date, timeZone));
  return {
    year: wall.getUTCFullYear(), month: wall.getUTCMonth() + 1, day: wall.getUTCDate(),
    hour: wall.getUTCHours(), minute: wall.getUTCMinutes(), second: wall.getUTCSeconds(),
    weekday: WEEKDAYS[wall.getUTCDay()], monthName: MONTHS[wall.getUTCMonth()],
  };
}

const WEEKDAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

function formatter(timeZone) {
  if (!formatters.has(timeZone)) {
    formatters.set(timeZone, new Intl.DateTimeFormat("en-US", {
      timeZone, hourCycle: "h23", year: "numeric", month: "numeric", day: "numeric",
      hour: "numeric", minute: "numeric", second: "numeric",
    }));
  }
  return formatters.get(timeZone);
}

const two = (number) => String(number).padStart(2, "0");

export function clock(date, timeZone = chosen) {
  const { hour, minute } = fields(date, timeZone);
  return `${two(hour)}:${two(minute)}`;
}

/** "14:32:07" in the chosen zone. */
export function clockSeconds(date) {
  return `${clock(date)}:${two(fields(date).second)}`;
}

/** "Wed 16 Jan", with the year if it is not the present one. */
export function day(date, timeZone = chosen) {
  const { weekday, day: number, monthName, year } = fields(date, timeZone);
  const present = fields(serverNow(), timeZone).year;
  return [weekday, number, monthName, ...(year === present ? [] : [year])].join(" ");
}

/** "Wed 16 Jan, 11:00" in the chosen zone. */
export function moment(date) {
  return `${day(date)}, ${clock(date)}`;
}

/** "Wed 11:00": for times within a few days of now, or beside the date itself. */
export function shortMoment(date) {
  return `${fields(date).weekday} ${clock(date)}`;
}

/** "Wed 11:00 to Thu 07:00". */
export function range(start, end) {
  const near = (date) => Math.abs(date - serverNow()) < 6 * 86400_000;
  if (near(start) && near(end)) return `${shortMoment(start)} to ${shortMoment(end)}`;
  const same = day(start) === day(end);
  return `${moment(start)} to ${same ? clock(end) : moment(end)}`;
}

/**
 * What stands beside a moment: "10:00 UTC", with the day if it is another one than in the chosen zone. If the
 * chosen zone is UTC, only "UTC".
 */
export function utc(date) {
  if (chosen === "UTC") return "UTC";
  const other = day(date) !== day(date, "UTC");
  return `${other ? fields(date, "UTC").weekday : ""} ${clock(date, "UTC")} UTC`.trimStart();
}

/** The same beside a range: "10:00 UTC to Thu 06:00 UTC", or "UTC". */
export function utcRange(start, end) {
  return chosen === "UTC" ? "UTC" : `${utc(start)} to ${utc(end)}`;
}

/** "20 h", "31 h 28 min", "45 s", "30 days": the two largest units. */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.round(whole / 60);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 96 * 60) return joined(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(minutes / 60);
  return joined(Math.floor(hours / 24), "days", hours % 24, "h");
}

function joined(large, unit, small, smallUnit) {
  return small ? `${large} ${unit} ${small} ${smallUnit}` : `${large} ${unit}`;
}

/** "20 hours", "1 hour", "90 minutes", "12 hours 30 minutes", "5 days 3 hours". */
export function spell(milliseconds) {
  const minutes = Math.round(milliseconds / 60_000);
  if (minutes < 1) return plural(Math.round(milliseconds / 1000), "second");
  if (minutes < 60 || minutes === 90) return plural(minutes, "minute");
  if (minutes <= 96 * 60) return pair(Math.floor(minutes / 60), "hour", minutes % 60, "minute");
  const hours = Math.round(minutes / 60);
  return pair(Math.floor(hours / 24), "day", hours % 24, "hour");
}

function plural(number, unit) {
  return `${number} ${unit}${number === 1 ? "" : "s"}`;
}

function pair(large, unit, small, smallUnit) {
  return small ? `${plural(large, unit)} ${plural(small, smallUnit)}` : plural(large, unit);
}

/** "Wed 11:00 to Thu 07:00" of two moments or texts. */
export function span({ start, end }) {
  return range(new Date(start), new Date(end));
}

const UNITS = { s: 1, min: 60, m: 60, h: 3600, d: 86400, w: 604800 };

/** Seconds of "20 h", "90 min", "2 d 4 h", "1:30" or "20" (hours). */
export function parseDuration(text) {
  const clean = text.trim().toLowerCase();
  if (/^\d+(\.\d+)?$/.test(clean)) return Math.round(Number(clean) * 3600) || null;
  const hours = clean.match(/^(\d+):([0-5]\d)$/);
  if (hours) return Number(hours[1]) * 3600 + Number(hours[2]) * 60 || null;
  const pattern = /(\d+(?:\.\d+)?)\s*(seconds?|secs?|s|minutes?|mins?|m|hours?|h|days?|d|weeks?|w)(?=[\s\d,]|$)/g;
  let seconds = 0;
  const rest = clean.replace(pattern, (_all, number, unit) => {
    const short = unit.startsWith("mi") ? "min" : unit[0];
    seconds += Number(number) * UNITS[short];
    return "";
  });
  return rest.replace(/[\s,]/g, "") === "" && seconds > 0 ? Math.round(seconds) : null;
}

const QUARTER = 900_000;
const offsets = new Map(); // by zone, then by quarter of an hour: the axis needs hundreds a frame

export function offset(date, timeZone = chosen) {
  let known = offsets.get(timeZone);
  if (!known || known.size > 20_000) offsets.set(timeZone, (known = new Map()));
  const quarter = Math.floor(date.getTime() / QUARTER);
  let offsetMs = known.get(quarter);
  if (offsetMs === undefined) known.set(quarter, (offsetMs = offsetAt(quarter * QUARTER, timeZone)));
  return offsetMs;
}

function offsetAt(time, timeZone) {
  const parts = {};
  for (const { type, value } of formatter(timeZone).formatToParts(time)) parts[type] = Number(value);
  return Date.UTC(parts.year, parts.month - 1, parts.day, parts.hour, parts.minute, parts.second) - time;
}

/** The moment of a wall clock time in the chosen zone. */
export function atWall(year, month, number, hour = 0, minute = 0) {
  const wall = Date.UTC(year, month - 1, number, hour, minute);
  const times = candidates(wall);
  const right = times.filter((time) => time + offset(new Date(time)) === wall);
  return new Date(right.length ? Math.min(...right) : times[0]);
}

const DAY = 86400_000;

/** The moments that a wall clock time, as if it were UTC, has by the offsets before and after it. */
function candidates(wall) {
  return [wall - offset(new Date(wall - DAY)), wall - offset(new Date(wall + DAY))];
}

/** Midnight in the chosen zone, `days` after the day of `date`. */
export function midnight(date, days = 0) {
  const { year, month, day: number } = fields(date);
  return atWall(year, month, number + days);
}

/** The value of an `<input type="datetime-local">` for `date` in the chosen zone. */
export function toInput(date) {
  const { year, month, day: number, hour, minute } = fields(date);
  return `${year}-${two(month)}-${two(number)}T${two(hour)}:${two(minute)}`;
}

/**
 * The moments of the text of an `<input type="datetime-local">` in the chosen zone: none if the text is no time or
 * if the clocks skip it, two if the clocks repeat it.
 */
export function wallMoments(text) {
  const match = text.match(/^(\d{4,})-(\d\d)-(\d\d)T(\d\d):(\d\d)/);
  if (!match) return { dates: [], skippedTo: null };
  const [year, month, number, hour, minute] = match.slice(1).map(Number);
  const wall = Date.UTC(year, month - 1, number, hour, minute);
  const times = candidates(wall).filter((time) => time + offset(new Date(time)) === wall);
  const dates = [...new Set(times)].sort((one, other) => one - other).map((time) => new Date(time));
  return { dates, skippedTo: dates.length ? null : shift(wall) };
}

/** The first moment after the clocks were put forward within a day of `wall`. */
function shift(wall) {
  let [low, high] = [wall - 2 * DAY, wall + 2 * DAY];
  const before = offset(new Date(low));
  while (high - low > 60_000) {
    const middle = Math.floor((low + high) / 120_000) * 60_000;
    if (offset(new Date(middle)) === before) low = middle;
    else high = middle;
  }
  return new Date(high);
}

/** The moment of an `<input type="datetime-local">`, the first of two. */
export function fromInput(text) {
  return wallMoments(text).dates[0] || null;
}

/** ISO 8601 in UTC to the second, as the API reads it. */
export function iso(date) {
  return new Date(Math.round(date.getTime() / 1000) * 1000).toISOString().replace(".000Z", "Z");
}
