// The picture of a lease in time: preparation, what is over, what is left, now, reminders.

import { h } from "../dom.js";
import { clock, duration, fields, midnight, range, shortMoment, utc } from "../time.js";
import { eventWords, isOver } from "./words.js";

const HOUR = 3600_000;
const DAY = 24 * HOUR;
const STEPS = [HOUR / 60, HOUR / 12, HOUR / 4, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 7 * DAY, 28 * DAY];
const GAP = 10; // px between two labels

/**
 * Where everything of a lease is, as shares of the width from 0 to 1. Pure.
 * @param {object} lease
 * @param {{now: Date, ready?: Date|null}} times `ready`: when the preparation of the hosts begins or ended
 */
export function layout(lease, { now, ready = null }) {
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

/** Round moments of the chosen zone between two times, at most eight. */
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

/** The element of the picture; `now` as above. It fits its labels whenever its width changes. */
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

/** Place labels centred at their moments but inside the picture; those without room are hidden. */
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
