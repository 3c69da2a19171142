// Paints the time axis: labels, lines, weekends, the past and now.

import { clock, zone } from "../time.js";
import { horizontal, stroke, text, vertical, widthOf } from "./pen.js";

/** Weekends, the past and the lines of the axis. */
export function paintGround({ context, size, colours, ticks: axis, x, now }, top, bottom) {
  context.fillStyle = colours.bg;
  for (const { start, end } of axis.shades) context.fillRect(x(start), top, x(end) - x(start), bottom - top);
  if (x(now) > size.left) context.fillRect(size.left, top, x(now) - size.left, bottom - top);
  stroke(context, colours.line, () => { for (const { time } of axis.lines) vertical(context, x(time), top, bottom); });
}

/** The line of now. */
export function paintNowLine({ context, colours, size, x, now }, top, bottom) {
  if (x(now) < size.left || x(now) > size.width) return;
  context.fillStyle = colours.text;
  context.fillRect(Math.round(x(now)) - 1, top, 2, bottom - top);
}

/** Paint the labels of the axis. */
export function paintAxis(scene) {
  const { context, size, colours, ticks: axis, x } = scene;
  const upper = size.axis * 0.34;
  const lower = size.axis * 0.72;
  stroke(context, colours.line, () => {
    for (const { time, strong } of axis.lines) {
      const top = strong ? 8 : size.axis - 16 * size.font;
      if (strong || axis.bottom.length < 60) vertical(context, x(time), top, size.axis);
    }
  });
  labels(scene, axis.top, upper, scene.size.phone ? 14 : 14.5, colours.text);
  labels(scene, axis.bottom, lower, 12, colours.text2);
  stroke(context, colours.line2, () => horizontal(context, size.axis, size.left, size.width));
}

function labels(scene, list, y, px, colour) {
  const { context, size, colours, x } = scene;
  let free = -Infinity;
  for (const label of list) {
    const end = Math.min(x(label.end), size.width + 200);
    if (end <= size.left || x(label.time) > size.width || (!label.strong && x(label.time) < size.left - 3)) continue;
    const font = scene.font(px, label.strong || label.today ? 600 : 400);
    const gap = 6 * size.font;
    const at = Math.max(x(label.time), label.strong ? size.left : -Infinity) + gap;
    const room = end - at - gap;
    const whole = x(label.time) < size.left - 1 && label.pinned ? label.pinned : label.text;
    const content = widthOf(context, whole, font) <= room ? whole : label.short ?? whole;
    const width = widthOf(context, content, font);
    const left = label.center ? (x(label.time) + end - width) / 2 : at;
    if ((label.strong && width > room + gap) || left < free) continue;
    text(context, content, left, y, font, label.today && label.center ? colours.accentText : colour);
    free = left + width + 4;
    if (label.today && !label.center) free = todayMark(scene, left + width + 8 * size.font, y, end) ?? free;
  }
}

function todayMark(scene, left, y, end) {
  const { context, colours } = scene;
  const font = scene.font(12.5, 600);
  const width = widthOf(context, "today", font);
  if (left + width + 4 > end) return null;
  text(context, "today", left, y, font, colours.accentText);
  return left + width + 4;
}

let lastMinute = { key: "", label: "" };

// Formatting takes longer than drawing, so it is done once a minute.
function minuteLabel(now) {
  const key = `${zone()} ${Math.floor(now / 60_000)}`;
  if (lastMinute.key !== key) lastMinute = { key, label: clock(new Date(now)) };
  return lastMinute.label;
}

/** Paint the time of now on the axis. */
export function paintNow(scene) {
  const { context, size, colours, x, now } = scene;
  const at = x(now);
  if (at < size.left || at > size.width) return;
  const label = minuteLabel(now);
  const font = scene.font(12, 600);
  const width = widthOf(context, label, font) + 12 * size.font;
  const height = 18 * size.font;
  const left = Math.min(size.width - width, Math.max(size.left + 1, at - width / 2));
  context.fillStyle = colours.text;
  context.beginPath();
  context.roundRect(left, size.axis - height, width, height, 4);
  context.fill();
  text(context, label, left + 6 * size.font, size.axis - height / 2 + 0.5, font, colours.surface);
}
