// Charts of time: one lease, the weeks of one resource, utilisation.

import { get, query } from "../api.js";
import { field, h, loading, name, plain, replace } from "../dom.js";
import { propertiesOf } from "../lease/fields.js";
import { eventWords, isOver, typeTitle } from "../lease/words.js";
import { clock, day, duration, fields, iso, midnight, range, serverNow, shortMoment, utc } from "../time.js";
import { count, rememberParams, typesWithResources } from "./table.js";

const HOUR = 3600_000;
const DAY = 24 * HOUR;
const STEPS = [HOUR / 60, HOUR / 12, HOUR / 4, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 7 * DAY, 28 * DAY];
const GAP = 10; // px between two labels

/** Where everything of a lease is, as shares of the width from 0 to 1. */
function layout(lease, { now, ready = null }) {
  const [start, end] = [Date.parse(lease.start), Date.parse(lease.end)];
  const pad = (end - start) * 0.06;
  const first = Math.min(start - pad, ready ? Math.max(ready.getTime() - pad / 4, start - pad * 4) : start);
  const isNear = Math.abs(now - start) < (end - start) * 2 || (now > start && now < end);
  const from = isNear ? Math.min(first, now.getTime() - pad / 2) : first;
  const to = Math.max(end + pad, isNear ? now.getTime() + pad / 2 : 0);
  const at = (time) => (time - from) / (to - from);
  const middle = Math.min(Math.max(now.getTime(), start), end);
  return {
    from, to, at,
    start: at(start), end: at(end), middle: at(middle),
    now: now >= from && now <= to ? at(now.getTime()) : null,
    ready: ready && ready.getTime() < start ? at(Math.max(ready.getTime(), from)) : null,
    marks: marks(lease, start, end).map((event) =>
      ({ ...event, at: at(Date.parse(event.at)), date: new Date(event.at) })),
    ticks: ticks(from, to).map(at),
  };
}

function marks(lease, start, end) {
  return lease.events.filter(({ type, at }) =>
    type !== "start_lease" && type !== "end_lease" && Date.parse(at) >= start && Date.parse(at) <= end);
}

function ticks(from, to) {
  const step = STEPS.find((size) => (to - from) / size <= 8) || (to - from) / 8;
  const times = [];
  for (let day = 0; times.length < 400; day += Math.max(1, Math.round(step / DAY))) {
    const start = midnight(new Date(from), day).getTime();
    if (start > to) break;
    const end = step < DAY ? midnight(new Date(from), day + 1).getTime() : start + 1;
    for (let time = start; time < end; time += step) times.push(time);
  }
  return times.filter((time) => time >= from && time <= to);
}

export function timeline(lease, times) {
  const place = layout(lease, times);
  const tags = topTags(place, times.now);
  const element = h("div", { class: "timeline", role: "img", "aria-label": spoken(lease, place, times.now) },
    place.ready === null ? null : span("ready", place.ready, place.start),
    bars(lease, place, times.now),
    h("div", { class: "axis" }), place.ticks.map((at) => positioned("tick", at)),
    place.marks.map((mark) => positioned("mark", mark.at)),
    place.now === null ? null : positioned("now", place.now),
    tags.map((tag) => tag.element), ends(lease));
  const fit = () => arrange(element, place, tags);
  new ResizeObserver(fit).observe(element);
  return element;
}

function bars(lease, place, now) {
  if (isOver(lease)) return span("over", place.start, place.end);
  const [start, end] = [Date.parse(lease.start), Date.parse(lease.end)];
  const left = end > now ? `${duration((end - Math.max(now, start)) / 1000)}${now > start ? " left" : ""}` : "";
  const kind = lease.status === "PENDING" ? "late" : "done";
  return [place.middle > place.start ? span(kind, place.start, place.middle) : null,
    place.middle < place.end ? span("todo", place.middle, place.end, left) : null];
}

function span(kind, from, to, text) {
  const element = h("div", { class: kind === "ready" ? "ready" : `span ${kind}` }, text);
  element.style.left = `${from * 100}%`;
  element.style.width = `${(to - from) * 100}%`;
  return element;
}

function positioned(kind, at) {
  const element = h("div", { class: kind });
  element.style.left = `${at * 100}%`;
  return element;
}

function topTags({ now, marks: events }, present) {
  const list = [];
  if (now !== null) list.push({ at: now, element: h("div", { class: "tag now-tag" }, `now, ${clock(present)}`) });
  const later = [...events].sort((one, other) => (other.status === "UNDONE") - (one.status === "UNDONE")
    || one.at - other.at);
  for (const event of later) {
    const text = event.type.startsWith("before_") ? "reminder" : event.type;
    list.push({ at: event.at, element: h("div", { class: "tag" }, `${text}, ${shortMoment(event.date)}`) });
  }
  return list;
}

function ends(lease) {
  return ["start", "end"].map((key) => {
    const date = new Date(lease[key]);
    return h("div", { class: "tag end", "data-end": key }, h("b", {}, dated(date)), utc(date));
  });
}

/** "Tue 06:00", with the date if it is more than six days away. */
function dated(date) {
  const { day, monthName } = fields(date);
  return Math.abs(date - Date.now()) < 6 * DAY ? shortMoment(date) : `${day} ${monthName}, ${clock(date)}`;
}

function arrange(element, place, tags) {
  const width = element.clientWidth;
  if (!width) return;
  const taken = [];
  for (const { at, element: tag } of tags) put(tag, at, width, taken, true);
  const bottom = [];
  const [start, end] = element.querySelectorAll(".tag.end");
  put(start, place.start, width, bottom, false);
  put(end, place.end, width, bottom, false);
}

function put(tag, at, width, taken, mayHide) {
  tag.hidden = false;
  const size = tag.offsetWidth;
  let left = Math.min(Math.max(at * width - size / 2, 0), Math.max(0, width - size));
  const clash = taken.find(([from, to]) => left < to + GAP && left + size > from - GAP);
  if (clash && mayHide) {
    tag.hidden = true;
    return;
  }
  if (clash) left = Math.min(clash[1] + GAP, Math.max(0, width - size));
  tag.style.left = `${left}px`;
  taken.push([left, left + size]);
}

function spoken(lease, place, now) {
  const parts = [range(new Date(lease.start), new Date(lease.end))];
  if (place.now !== null) parts.push(`now ${clock(now)}`);
  for (const event of place.marks) parts.push(`${eventWords(event).toLowerCase()} ${shortMoment(event.date)}`);
  return parts.join("; ");
}

// The bookings of one resource as a chart of four weeks, a line for each week.

export const WEEKS = 4;
const KINDS = ["taken", "own", "cleaning", "closed", "held", "preparing", "shared"];
const WORDS = { taken: "Taken", own: "Yours", cleaning: "Cleaning", closed: "Not bookable", held: "Held",
  preparing: "Getting ready", shared: "Partly taken" };

/**
 * The bookings of `resource` between two moments, by start: of all leases with `names`, which the policy must allow,
 * else one's own leases and anonymous intervals of the calendar.
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

/** The chart: a figure whose lines are weeks from `start`, a midnight. */
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
  const now = first ? placed(h("span", { class: "now-line" }), place(serverNow())) : null;
  return h("div", { class: "week" },
    h("div", { class: "week-days" }, days.map((date, at) => dayLabel(date, at, place))),
    h("div", { class: "week-lane" },
      days.slice(1).map((date) => placed(h("span", { class: "day-line" }), place(date))), cleaning, bars, now));
}

function dayLabel(date, at, place) {
  const { weekday, day: number, monthName } = fields(date);
  const label = at === 0 ? day(date) : weekday;
  return placed(h("span", {}, h("span", { class: "long" }, label),
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
  return placed(element, left);
}

function placed(element, left) {
  element.style.left = `${left}%`;
  return element;
}

// Utilisation in time, as a heat map that is a table.

const BY = [["type", "Type"], ["project", "Project"], ["property", "Property"]];
// [key, label, days back, days ahead, period]
const SPANS = [
  ["past7", "Last 7 days", 7, 0, "hour"], ["past30", "Last 30 days", 30, 0, "day"],
  ["past90", "Last 90 days", 90, 0, "day"],
  ["next7", "Next 7 days", 0, 7, "hour"], ["next30", "Next 30 days", 0, 30, "day"],
  ["around", "60 days around now", 30, 30, "day"], ["year", "Last year", 364, 0, "week"],
];
const SECONDS = { hour: 3600, day: 86400, week: 604800 };
const LEVELS = 5;
const MOST_NUMBERS = 62; // columns above which days have no room for their numbers

export async function showUtilisation(element, { me, params }) {
  const map = new HeatMap(me, params);
  replace(element, map.element);
  await map.load();
  return () => {};
}

class HeatMap {
  constructor(me, params) {
    const select = (id, choices, chosen) => {
      const control = h("select", { id },
        choices.map(([value, words]) => h("option", { value, selected: value === chosen }, words)));
      control.addEventListener("change", () => this.load());
      return control;
    };
    this.type = select("heat-type", typesWithResources(me).map((type) => [type, typeTitle(type)]), params.get("type"));
    this.by = select("heat-by", BY, params.get("by") || "type");
    this.span = select("heat-span", SPANS, params.get("span") || "past30");
    this.property = h("input", { id: "heat-property", list: "heat-properties", value: params.get("property") || "",
      autocapitalize: "off", spellcheck: "false" });
    this.property.addEventListener("change", () => this.load());
    this.names = h("datalist", { id: "heat-properties" });
    this.propertyField = field("Property", this.property);
    this.numbers = h("input", { type: "checkbox", id: "heat-numbers" });
    this.numbers.addEventListener("change", () => this.content.classList.toggle("with-numbers", this.numbers.checked));
    this.content = h("div", { class: "heat-content" });
    this.element = h("section", { class: "card", "aria-labelledby": "heat" }, h("h2", { id: "heat" }, "Utilisation"),
      h("div", { class: "filters" }, field("Resources", this.type), field("By", this.by), this.propertyField,
        field("Period", this.span),
        h("div", { class: "check" }, this.numbers, h("label", { for: "heat-numbers" }, "Show numbers"))), this.names,
          this.content);
    this.suggest();
  }

  async suggest() {
    try {
      const known = await propertiesOf(this.type.value);
      replace(this.names, known.map((item) => h("option", { value: item.name })));
    } catch {
      this.names.replaceChildren(); // people write the name of the property
    }
  }

  async load() {
    const by = this.by.value;
    const property = this.property.value.trim();
    this.propertyField.hidden = by !== "property";
    rememberParams({ type: this.type.value, by, span: this.span.value, property: by === "property" ? property : null });
    if (by === "property" && !property) {
      replace(this.content, h("p", { class: "empty" }, "Write the name of a property, such as rack."));
      return;
    }
    const [, , back, ahead, period] = SPANS.find(([key]) => key === this.span.value);
    const [start, end] = spanOf(period, back, ahead);
    await loading(this.content, async () => draw(await get(`/v2/utilisation${query({
      resource_type: this.type.value, start: iso(start), end: iso(end), period, by, property: by === "property"
        ? property : null,
    })}`), by), "the utilisation");
  }
}

// Whole hours, or days of 24 hours that end at a midnight of the chosen zone, today included. Beyond a change
// of the clocks, days begin an hour off midnight.
function spanOf(period, back, ahead) {
  const now = serverNow();
  if (period !== "hour") return wholeDays(midnight(now, ahead || 1), back + (ahead || 1));
  const hour = Math.floor(now / 3600_000) * 3600_000;
  return [new Date(hour - back * 86400_000), new Date(hour + ahead * 86400_000)];
}

function wholeDays(end, days) {
  return [new Date(end.getTime() - days * 86400_000), end];
}

function draw({ start, period, series }, by) {
  if (!series.length) return h("p", { class: "empty" }, "Nothing was reserved in this period.");
  const times = series[0].values.map((_, at) => new Date(Date.parse(start) + at * SECONDS[period] * 1000));
  const caption = `Utilisation in per cent, by ${by}, in periods of one ${period}`;
  return [legend(), h("div", { class: "table heat-frame", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: "heat" }, h("caption", { class: "visually-hidden" }, caption), head(times, period, by),
      h("tbody", {}, series.map((item) => seriesRow({ ...item, name: seriesName(item.name, by) }, times, period)))))];
}

function head(times, period, by) {
  const spans = groups(times, period).map(([words, span]) =>
    h("th", { scope: "colgroup", colspan: span, class: "span" }, words));
  const isSparse = period === "day" && times.length <= MOST_NUMBERS;
  const each = times.map((date) => h("th", { scope: "col" },
    h("span", { class: "visually-hidden" }, label(date, period)), isSparse ? dayNumber(date, period) : null));
  return h("thead", {},
    h("tr", {}, h("th", { scope: "col" }, `${by[0].toUpperCase()}${by.slice(1)}, capacity`), spans,
      h("th", { scope: "col" }, "Mean")),
    h("tr", { class: "each" }, h("td"), each, h("td")));
}

function dayNumber(date, period) {
  return h("span", { class: "day-number", "aria-hidden": "true" }, String(fields(middle(date, period)).day));
}

function seriesName(text, by) {
  if (by === "type") return typeTitle(text);
  return text === null || text === "" ? "Without it" : text;
}

function seriesRow({ name: text, capacity, values }, times, period) {
  const mean = values.reduce((sum, value) => sum + value, 0) / (values.length || 1);
  return h("tr", {}, h("th", { scope: "row" }, h("span", { class: "series" }, name(text)), capacity
    ? h("small", { class: "quiet" }, ` ${count(capacity)}`) : null),
    values.map((value, at) => cell(value, `${plain(text)}, ${label(times[at], period)}`)),
    h("td", { class: "mean" }, percent(mean)));
}

function cell(value, title) {
  const fill = h("span", { class: `level-${Math.min(LEVELS, Math.ceil(value * LEVELS))}` });
  fill.style.height = value > 0 ? `max(2px, ${Math.min(100, value * 100)}%)` : "0";
  return h("td", { title: `${title}: ${percent(value)}` }, fill, h("b", {}, percent(value)));
}

function percent(value) {
  return `${value > 0 && value < 0.01 ? "<1" : count(value * 100, 0)} %`;
}

function label(date, period) {
  return period === "hour" ? `${day(date)}, ${clock(date)}` : day(middle(date, period));
}

function middle(date, period) {
  return new Date(date.getTime() + SECONDS[period] * 500);
}

function groups(times, period) {
  const found = [];
  for (const date of times) {
    const { monthName, year } = fields(middle(date, period));
    const words = period === "hour" ? day(date) : `${monthName} ${year}`;
    const last = found[found.length - 1];
    if (last && last[0] === words) last[1] += 1;
    else found.push([words, 1]);
  }
  return found;
}

function legend() {
  return h("p", { class: "heat-legend small quiet", "aria-hidden": "true" }, "0 %",
    Array.from({ length: LEVELS }, (_, at) => {
    const fill = h("span", { class: `level-${at + 1}` });
    fill.style.height = `${((at + 1) / LEVELS) * 100}%`;
    return h("i", {}, fill);
  }), "100 %");
}
