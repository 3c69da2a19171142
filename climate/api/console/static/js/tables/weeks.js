// The bookings of one resource as a chart of four weeks, a line for each week.

import { get, query } from "../api.js";
import { h, plain } from "../dom.js";
import { clock, day, fields, iso, midnight, range, serverNow } from "../time.js";

/** How many weeks the chart has. */
export const WEEKS = 4;
const KINDS = ["taken", "own", "cleaning", "closed", "held", "preparing", "shared"];
const WORDS = { taken: "Taken", own: "Yours", cleaning: "Cleaning", closed: "Not bookable", held: "Held",
  preparing: "Getting ready", shared: "Partly taken" };

/**
 * The bookings of `resource` between two moments, by start: of all leases with `names`, which the
 * policy must allow, else one's own leases and anonymous intervals of the calendar. Leases of
 * `project` are its own.
 */
export async function bookingsOf(resource, start, end, { names, project }) {
  if (names) {
    const body = await get(
      `/v2/resources/${encodeURIComponent(resource.id)}/bookings${query({ start: iso(start), end: iso(end),
        limit: 200 })}`);
    return (body.bookings || body).map((item) => ({
      ...item, kind: item.project_id === project ? "own" : "other", words: "Lease",
      start: new Date(item.start), end: new Date(item.end), busyUntil: new Date(item.busy_until || item.end),
    }));
  }
  const body = await get(
    `/v2/calendar${query({ resource_type: resource.resource_type, start: iso(start), end: iso(end),
      properties: JSON.stringify(["==", "$id", resource.id]), limit: 1 })}`);
  const row = body.rows.find((item) => item.id === resource.id);
  return row ? [...intervals(row.x, body)] : [];
}

function* intervals(x, { start, leases }) {
  const zero = Date.parse(start);
  for (let at = 0; at < x.length; at += 3) {
    const kind = KINDS[x[at + 2]] || "taken";
    const item = { kind, words: WORDS[kind], start: new Date(zero + x[at] * 1000),
      end: new Date(zero + (x[at] + x[at + 1]) * 1000) };
    if (kind === "own") {
      const lease = leases[x[at + 3]];
      Object.assign(item, { lease_id: lease.id, lease_name: lease.name });
    }
    if (kind === "own" || kind === "shared") at += 1;
    if (kind !== "cleaning") yield item;
  }
}

/** The chart: a figure whose lines are weeks from `start`, a midnight. Days of 23 or 25 hours have their width. */
export function weekChart(start, bookings) {
  const weeks = Array.from({ length: WEEKS }, (_, at) => week(midnight(start, 7 * at), bookings, at === 0));
  return h("figure", { class: "weeks", role: "img", "aria-label": summary(bookings) }, weeks);
}

function summary(bookings) {
  if (!bookings.length) return "No booking in the next four weeks.";
  const [first] = bookings;
  return `${bookings.length} bookings in the next four weeks, listed below. The first: ${plain(first.lease_name
    || first.words)}, ${range(first.start, first.end)}.`;
}

function week(start, bookings, first) {
  const end = midnight(start, 7);
  const place = (date) => (100 * Math.min(Math.max(date - start, 0), end - start)) / (end - start);
  const days = Array.from({ length: 7 }, (_, at) => midnight(start, at));
  const bars = bookings.filter((item) => item.end > start && item.start < end).map((item) => bar(item, place));
  const cleaning = bookings.filter(({ end: over, busyUntil }) => busyUntil > over && busyUntil > start && over < end)
    .map((item) => bar({ ...item, kind: "cleaning", words: "Cleaning", lease_name: "", lease_id: null, start: item.end,
      end: item.busyUntil }, place));
  const now = first ? positioned(h("span", { class: "now-line" }), place(serverNow())) : null;
  return h("div", { class: "week" },
    h("div", { class: "week-days" }, days.map((date, at) => dayLabel(date, at, place))),
    h("div", { class: "week-lane" },
      days.slice(1).map((date) => positioned(h("span", { class: "day-line" }), place(date))), cleaning, bars, now));
}

function dayLabel(date, at, place) {
  const { weekday, day: number, monthName } = fields(date);
  const label = at === 0 ? day(date) : weekday;
  return positioned(h("span", {}, h("span", { class: "long" }, label),
    h("span", { class: "short" }, at === 0 ? `${number} ${monthName}` : String(number))), place(date));
}

function bar(item, place) {
  const left = place(item.start);
  const width = Math.max(place(item.end) - left, 0.4);
  const title = `${plain(item.lease_name || item.words)}, ${range(item.start, item.end)}`;
  const label = item.lease_id && width > 12 ? h("bdi", {}, plain(item.lease_name)) : null;
  const running = item.start <= serverNow() && item.end > serverNow();
  const element = h("span", { class: `week-bar kind-${item.kind}${running && item.lease_id ? " running" : ""}`,
    title: `${title} (${clock(item.start)})` }, label);
  element.style.width = `${width}%`;
  return positioned(element, left);
}

function positioned(element, left) {
  element.style.left = `${left}%`;
  return element;
}
