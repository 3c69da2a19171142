// Paints the calendar on its canvas: background, rows, band, axis, names. Bars and overlays are in modules of their own.

import { fields, offset, serverNow, zoneName } from "../time.js";
import { plain } from "../dom.js";
import { paintBars, paintStrips } from "./bars.js";
import { hatch } from "./palette.js";
import { paintBandOverlay, paintRowOverlay } from "./overlay.js";
import { HOUR, ticks } from "./scale.js";
import { stateWords, typeWords } from "./words.js";

/** Paint a whole frame. */
export function paint(context, view) {
  const scene = sceneOf(context, view);
  const { size, colours } = scene;
  context.fillStyle = colours.surface;
  context.fillRect(0, 0, size.width, size.height);
  clipped(context, size.left, size.top, size.body, size.height - size.top, () => paintBody(scene));
  clipped(context, size.left, size.axis, size.body, size.band, () => paintBand(scene));
  clipped(context, size.left, 0, size.body, size.axis, () => paintAxis(scene));
  paintNames(scene);
  paintHeadings(scene);
  paintNow(scene);
}

function sceneOf(context, view) {
  const { size, colours, state, data } = view;
  const now = serverNow().getTime();
  const { from, to, scale, windows } = view;
  const x = (time) => size.left + (time - from) * scale;
  return {
    view, context, size, colours, state, data, now, from, to, scale, windows, x, words: typeWords(state.resourceType),
    items: view.itemsInSight(), scrollTop: view.element.scrollTop, ticks: cachedTicks(view, now), overlay: view.overlay,
    font: (px, weight = 400) => `${weight} ${Math.max(11, px * size.font)}px ${colours.sans}`,
  };
}

// Ticks cost a formatter call each, so a screen on either side is made in advance.
function cachedTicks(view, now) {
  const { from, to, scale, size } = view;
  const old = view.ticks;
  const today = Math.floor((now + offset(new Date(now))) / 86_400_000);
  if (old && old.scale === scale && old.from <= from && old.to >= to && old.today === today && old.font === size.font) return old;
  const span = to - from;
  view.ticks = {
    ...ticks(from - span, to + span, scale, 42 * size.font, new Date(now)), scale, from: from - span, to: to + span, today, font: size.font,
  };
  return view.ticks;
}

function clipped(context, x, y, width, height, draw) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  draw();
  context.restore();
}

/** A crisp vertical line of one px. */
function vertical(context, x, top, bottom) {
  context.moveTo(Math.round(x) + 0.5, top);
  context.lineTo(Math.round(x) + 0.5, bottom);
}

function horizontal(context, y, left, right) {
  context.moveTo(left, Math.round(y) - 0.5);
  context.lineTo(right, Math.round(y) - 0.5);
}

function stroke(context, colour, draw, width = 1) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.beginPath();
  draw();
  context.stroke();
}

function text(context, content, x, y, font, colour, room) {
  context.font = font;
  context.fillStyle = colour;
  context.textBaseline = "middle";
  context.fillText(room === undefined ? content : fit(context, content, room), x, y);
}

const widths = new Map();

/** The width of a text in the current font. */
export function widthOf(context, content) {
  const key = `${context.font} ${content}`;
  if (!widths.has(key)) {
    if (widths.size > 5000) widths.clear();
    widths.set(key, context.measureText(content).width);
  }
  return widths.get(key);
}

/** The text, shortened with an ellipsis to `room` px. */
export function fit(context, content, room) {
  if (widthOf(context, content) <= room) return content;
  let length = Math.floor((content.length * room) / widthOf(context, content));
  while (length > 0 && widthOf(context, `${content.slice(0, length)}\u2026`) > room) length -= 1;
  return length > 0 ? `${content.slice(0, length)}\u2026` : "";
}

// Rows

function paintBody(scene) {
  const { context, size, colours, items, scrollTop } = scene;
  paintGround(scene, size.top, size.height);
  const end = items.length ? size.top + items[items.length - 1].y + items[items.length - 1].height - scrollTop : size.top;
  if (size.row >= 8) {
    stroke(context, colours.line, () => {
      for (const { y, height } of items) horizontal(context, size.top + y + height - scrollTop, size.left, size.width);
    });
  }
  paintRows(scene);
  if (end < size.height) {
    context.fillStyle = colours.bg;
    context.fillRect(size.left, end, size.body, size.height - end);
  }
  paintGroups(scene);
  paintRowOverlay(scene);
}

/** Weekends, the past and the lines of the axis. */
function paintGround({ context, size, colours, ticks: axis, x, now }, top, bottom) {
  context.fillStyle = colours.bg;
  for (const { start, end } of axis.shades) context.fillRect(x(start), top, x(end) - x(start), bottom - top);
  if (x(now) > size.left) context.fillRect(size.left, top, x(now) - size.left, bottom - top);
  stroke(context, colours.line, () => { for (const { time } of axis.lines) vertical(context, x(time), top, bottom); });
}

function paintRows(scene) {
  const { items, size, scrollTop, state } = scene;
  const heat = scene.data.settings.resolution > 0;
  if (heat && size.row < 3) {
    paintStrips(scene);
    paintNowLine(scene, size.top, size.height);
    return;
  }
  const rows = items.filter(({ kind }) => kind === "row");
  for (const item of rows) paintLoading(scene, item, size.top + item.y - scrollTop);
  paintBars(scene, rows, { own: false });
  paintNowLine(scene, size.top, size.height);
  paintBars(scene, rows, { own: true });
  void state;
}

function paintLoading(scene, item, y) {
  const { context, size, colours, data, windows, x, view } = scene;
  for (const start of windows) {
    const state = data.stateOf(item.index, start);
    if (state === "ready") continue;
    const left = Math.max(size.left, x(start));
    const right = Math.min(size.width, x(start + data.settings.chunk));
    context.fillStyle = state === "failed" ? colours.badSoft : colours.sunken;
    context.fillRect(left, y + size.row * 0.25, right - left, size.row * 0.5);
    if (state === "failed" && item.index % 5 === 0) {
      text(context, "Not loaded. Select to try again.", left + 8, y + size.row / 2, scene.font(12, 500), colours.bad, right - left - 12);
    }
    if (state === "late" && item.index % 5 === 0) text(context, "Still loading", left + 8, y + size.row / 2, scene.font(12), colours.text2, right - left - 12);
  }
  void view;
}

function paintGroups(scene) {
  const { context, size, colours, items, scrollTop, words } = scene;
  for (const item of items) {
    if (item.kind !== "group") continue;
    const y = size.top + item.y - scrollTop;
    context.fillStyle = colours.bg;
    context.fillRect(size.left, y, size.body, item.height);
    stroke(context, colours.line, () => horizontal(context, y + item.height, size.left, size.width));
    if (size.phone) continue;
    const { rows, free_now: free } = item.group;
    const label = free === undefined ? `${rows} ${rows === 1 ? words.one : words.many}` : `${free} of ${rows} free now`;
    text(context, label, size.left + 11 * size.font, y + item.height / 2, scene.font(12.5), colours.text2);
  }
}

function paintNowLine({ context, colours, size, x, now }, top, bottom) {
  if (x(now) < size.left || x(now) > size.width) return;
  context.fillStyle = colours.text;
  context.fillRect(Math.round(x(now)) - 1, top, 2, bottom - top);
}

// The band of free capacity

function paintBand(scene) {
  const { context, size, colours, view, x, windows, data } = scene;
  const top = size.axis;
  const bottom = size.top;
  paintGround(scene, top, bottom);
  for (const start of windows) {
    const state = data.bandState(start);
    if (state === "ready") continue;
    const left = Math.max(size.left, x(start));
    context.fillStyle = state === "failed" ? colours.badSoft : colours.sunken;
    context.fillRect(left, bottom - size.band * 0.4, x(start + data.settings.chunk) - left, size.band * 0.3);
    if (state === "failed") text(context, "Free capacity is not loaded. Select to try again.", left + 8, bottom - size.band / 4, scene.font(12, 500), colours.bad);
  }
  const plot = bandPlot(view);
  const steps = view.bandSteps().filter(({ start, end }) => end > scene.from && start < scene.to);
  paintSteps(scene, steps, plot);
  paintNowLine(scene, top, bottom);
  paintBandOverlay(scene, plot);
  stroke(context, colours.line2, () => horizontal(context, bottom, size.left, size.width));
}

/** The vertical scale of the band: `{base, y(units)}`. */
export function bandPlot(view) {
  const { size, state } = view;
  const base = size.top - 10 * size.font;
  const most = view.bandSteps().reduce((max, { free }) => Math.max(max, free), 0);
  const limit = Math.max(1, most, Math.ceil(state.amount * 1.5));
  const room = size.band - 30 * size.font;
  return { base, most, y: (units) => base - (Math.min(units, limit) / limit) * room };
}

function paintSteps(scene, steps, { base, y }) {
  const { context, colours, x, state } = scene;
  context.fillStyle = colours.band;
  for (const { start, end, free } of steps) {
    if (free > 0) context.fillRect(x(start), y(free), x(end) - x(start) + 0.5, base - y(free));
  }
  context.fillStyle = hatch(context, colours, { colour: colours.cleaning, gap: 6, width: 1.2 });
  for (const { start, end, free } of steps) {
    if (free < state.amount) context.fillRect(x(start), y(state.amount), x(end) - x(start), y(free) - y(state.amount));
  }
  stroke(context, colours.bandLine, () => stepLine(context, steps, x, y), 2);
  context.setLineDash([5, 4]);
  stroke(context, colours.text, () => horizontal(context, y(state.amount), scene.size.left, scene.size.width));
  context.setLineDash([]);
}

function stepLine(context, steps, x, y) {
  let before = null;
  for (const { start, end, free } of steps) {
    if (before === null || before !== start) context.moveTo(x(start), y(free));
    else context.lineTo(x(start), y(free));
    context.lineTo(x(end), y(free));
    before = end;
  }
}

// The axis

function paintAxis(scene) {
  const { context, size, colours, ticks: axis, x } = scene;
  const upper = size.axis * 0.34;
  const lower = size.axis * 0.72;
  stroke(context, colours.line, () => {
    for (const { time, strong } of axis.lines) {
      if (strong || axis.bottom.length < 60) vertical(context, x(time), strong ? 8 : size.axis - 16 * size.font, size.axis);
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
    if (end <= size.left || x(label.time) > size.width) continue;
    context.font = scene.font(px, label.strong || label.today ? 600 : 400);
    const gap = 6 * size.font;
    const at = Math.max(x(label.time), label.strong ? size.left : -Infinity) + gap;
    const room = end - at - gap;
    const content = widthOf(context, label.text) <= room ? label.text : label.short ?? label.text;
    const width = widthOf(context, content);
    const left = label.center ? (x(label.time) + end - width) / 2 : at;
    if ((label.strong && width > room + gap) || left < free) continue;
    text(context, content, left, y, context.font, label.today && label.center ? colours.accentText : colour);
    free = left + width + 4;
    if (label.today && !label.center) free = todayMark(scene, left + width + 8 * size.font, y, end) ?? free;
  }
}

function todayMark(scene, left, y, end) {
  const { context, colours } = scene;
  context.font = scene.font(12.5, 600);
  const width = widthOf(context, "today");
  if (left + width + 4 > end) return null;
  text(context, "today", left, y, context.font, colours.accentText);
  return left + width + 4;
}

function paintNow(scene) {
  const { context, size, colours, x, now } = scene;
  const at = x(now);
  if (at < size.left || at > size.width) return;
  const { hour, minute } = fields(new Date(now));
  const label = `${String(hour).padStart(2, "0")}:${String(minute).padStart(2, "0")}`;
  context.font = scene.font(12, 600);
  const width = widthOf(context, label) + 12 * size.font;
  const height = 18 * size.font;
  const left = Math.min(size.width - width, Math.max(size.left - width / 2, at - width / 2));
  context.fillStyle = colours.text;
  context.beginPath();
  context.roundRect(left, size.axis - height, width, height, 4);
  context.fill();
  text(context, label, left + 6 * size.font, size.axis - height / 2 + 0.5, context.font, colours.surface);
}

// The column of names

function paintNames(scene) {
  const { context, size, colours, items, scrollTop, data } = scene;
  clipped(context, 0, size.top, size.left, size.height - size.top, () => {
    context.fillStyle = colours.surface;
    context.fillRect(0, size.top, size.left, size.height);
    for (const item of items) {
      const y = size.top + item.y - scrollTop;
      if (item.kind === "group") paintGroupName(scene, item, y);
      else if (size.row >= 12) paintName(scene, data.row(item.index), y);
    }
    if (size.row >= 8) {
      stroke(context, colours.line, () => {
        for (const { y, height } of items) horizontal(context, size.top + y + height - scrollTop, 0, size.left);
      });
    }
  });
  stroke(context, colours.line, () => vertical(context, size.left - 1, 0, size.height));
}

function paintGroupName(scene, { group, height }, y) {
  const { context, size, colours, state } = scene;
  context.fillStyle = colours.bg;
  context.fillRect(0, y, size.left, height);
  const folded = state.folded.has(group.name);
  chevron(context, 9 * size.font, y + height / 2, 3.2 * size.font, folded, colours.text2);
  const left = 18 * size.font;
  const name = plain(group.name === "" || group.name === null ? "none" : group.name);
  const font = scene.font(13.5, 600);
  context.font = font;
  text(context, name, left, y + height / 2, font, colours.text, size.left - left - 8);
  if (!size.phone || group.free_now === undefined) return;
  const after = left + widthOf(context, name) + 8;
  context.font = scene.font(12);
  const label = `${group.free_now} of ${group.rows} free`;
  const short = `${group.free_now} of ${group.rows}`;
  const room = size.left - after - 4;
  const content = [label, short].find((candidate) => widthOf(context, candidate) <= room);
  if (content) text(context, content, after, y + height / 2, scene.font(12), colours.text2);
}

function chevron(context, x, y, radius, folded, colour) {
  stroke(context, colour, () => {
    if (folded) {
      context.moveTo(x - radius / 2, y - radius);
      context.lineTo(x + radius / 2, y);
      context.lineTo(x - radius / 2, y + radius);
    } else {
      context.moveTo(x - radius, y - radius / 2);
      context.lineTo(x, y + radius / 2);
      context.lineTo(x + radius, y - radius / 2);
    }
  }, 1.6);
}

function paintName(scene, row, y) {
  const { context, size, colours } = scene;
  const middle = y + size.row / 2;
  if (!row) {
    context.fillStyle = colours.sunken;
    context.fillRect(34 * size.font, middle - 5, size.left * 0.4, 10);
    return;
  }
  const glyphX = 20 * size.font;
  glyph(context, row.state, glyphX, middle, 5 * size.font, colours);
  const left = glyphX + 14 * size.font;
  const words = size.phone ? "" : stateWords(row.state);
  context.font = scene.font(12);
  const wordsWidth = words ? widthOf(context, words) : 0;
  const right = size.left - 12 * size.font;
  text(context, plain(row.name), left, middle, scene.font(13.5), colours.text, right - left - (wordsWidth ? wordsWidth + 8 : 0));
  if (words) text(context, words, right - wordsWidth, middle, scene.font(12), colours.text2);
}

/** The glyph of a row's state: dot, half-filled ring, power, open triangle. */
function glyph(context, state, x, y, radius, colours) {
  if (state === "preparing") return half(context, x, y, radius, colours.accent);
  if (state === "off") return power(context, x, y, radius, colours.text2);
  if (state === "set_aside" || state === "failing") return triangle(context, x, y, radius, colours.closedHatch, state === "failing");
  context.fillStyle = colours.accent;
  context.beginPath();
  context.arc(x, y, radius * 0.8, 0, 2 * Math.PI);
  context.fill();
}

function half(context, x, y, radius, colour) {
  stroke(context, colour, () => context.arc(x, y, radius * 0.9, 0, 2 * Math.PI), 1.6);
  context.fillStyle = colour;
  context.beginPath();
  context.arc(x, y, radius * 0.9, -Math.PI / 2, Math.PI / 2);
  context.fill();
}

function power(context, x, y, radius, colour) {
  stroke(context, colour, () => {
    context.arc(x, y + radius * 0.1, radius * 0.85, -Math.PI * 0.28, Math.PI * 1.28);
    context.moveTo(x, y - radius);
    context.lineTo(x, y);
  }, 1.6);
}

function triangle(context, x, y, radius, colour, filled) {
  const draw = () => {
    context.moveTo(x, y - radius);
    context.lineTo(x + radius * 1.1, y + radius * 0.9);
    context.lineTo(x - radius * 1.1, y + radius * 0.9);
    context.closePath();
  };
  stroke(context, colour, draw, 1.6);
  if (filled) stroke(context, colour, () => { context.moveTo(x, y - radius * 0.35); context.lineTo(x, y + radius * 0.55); }, 1.6);
}

// The corner and the heading of the band

function paintHeadings(scene) {
  const { context, size, colours, state } = scene;
  context.fillStyle = colours.surface;
  context.fillRect(0, 0, size.left - 1, size.top);
  const left = 14 * size.font;
  const room = size.left - left - 8;
  const [upper, lower] = corner(scene);
  text(context, upper, left, size.axis * 0.34, scene.font(12.5), colours.text2, room);
  text(context, lower, left, size.axis * 0.72, scene.font(12.5), colours.text2, room);
  const lines = bandHeading(scene);
  const step = (size.phone ? 19 : 20) * size.font;
  const first = size.axis + size.band * (size.phone ? 0.3 : 0.26);
  lines.forEach((line, index) => text(context, line, left, first + index * step, index ? scene.font(12.5) : scene.font(13.5, 600),
    index ? colours.text2 : colours.text, room));
  stroke(context, colours.line2, () => {
    horizontal(context, size.axis, 0, size.left);
    horizontal(context, size.top, 0, size.left);
  });
  void state;
}

function corner({ size, ticks: axis, from, now }) {
  const zone = size.phone ? zoneName() : `${zoneName()} time`;
  if (axis.wholeDays) return [zone, daysStart(size, now)];
  const { weekday, day, monthName } = fields(new Date(from + 0.5 * HOUR));
  const date = `${weekday} ${day} ${monthName}`;
  const long = axis.top.some(({ text: label }) => label.includes(":"));
  if (!long) return [zone, "UTC"];
  return [size.phone ? date : `${date}, ${zone}`, "UTC"];
}

function daysStart(size, now) {
  const { hour, minute } = fields(new Date(86_400_000 * 2 - offset(new Date(now))), "UTC");
  const time = `${String(hour).padStart(2, "0")}:${String(minute).padStart(2, "0")} UTC`;
  return size.phone ? `0:00 = ${time}` : `Days start at ${time}`;
}

function bandHeading({ size, state, data, words }) {
  const need = `- - - you need ${state.amount}`;
  if (size.phone) return [`Any ${words.one}`, "drag here", `- - need ${state.amount}`];
  const count = data.total;
  const match = count === null || state.q ? "drag here to reserve" : `${count} match, drag here to reserve`;
  return [`Any matching ${words.one}`, match, need];
}
