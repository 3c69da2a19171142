// Paints a frame of the chart: axis, band of free resources, rows, the present.

import { ticks } from "../calendar/scale.js";
import { typeWords } from "../lease/words.js";
import { clock, offset, serverNow, zone } from "../time.js";
import {
  clipped, hatch, horizontal, paintBandOverlay, paintRowOverlay, stroke, text, vertical, widthOf,
} from "./drawing.js";
import { paintBars, paintHeadings, paintNames, paintStrips } from "./rows.js";

export function paint(context, view, unchanged) {
  const scene = sceneOf(context, view);
  const { size } = scene;
  clipped(scene, size.left, size.top, size.body, size.height - size.top, paintBody);
  if (!unchanged.axis) {
    clipped(scene, size.left, size.axis, size.body, size.band, paintBand);
    clipped(scene, size.left, 0, size.body, size.axis, paintAxis);
    paintNow(scene);
  }
  if (!unchanged.names) clipped(scene, 0, size.top, size.left, size.height - size.top, paintNames);
  if (!unchanged.axis) paintHeadings(scene);
}

function sceneOf(context, view) {
  const { size, colours, state, data } = view;
  const now = serverNow().getTime();
  const { from, to, scale, windows } = view;
  const x = (time) => size.left + (time - from) * scale;
  return {
    view, context, size, colours, state, data, now, from, to, scale, windows, x, words: typeWords(state.resourceType),
    items: view.itemsInSight(), scrollTop: view.element.scrollTop, ticks: cachedTicks(view, now), overlay: view.overlay,
    font: (px, weight = 400) => fontOf(colours, Math.max(11, px * size.font), weight),
  };
}

function fontOf({ fonts, sans }, px, weight) {
  const key = px * 1000 + weight;
  if (!fonts.has(key)) fonts.set(key, `${weight} ${px}px ${sans}`);
  return fonts.get(key);
}

// Ticks cost a formatter call each, so a screen on either side is made in advance.
function cachedTicks(view, now) {
  const { from, to, scale, size } = view;
  const old = view.ticks;
  const today = Math.floor((now + offset(new Date(now))) / 86_400_000);
  const covers = old && old.scale === scale && old.from <= from && old.to >= to;
  if (covers && old.today === today && old.font === size.font) return old;
  const span = old && old.scale !== scale ? 0 : to - from; // While zooming, each frame has ticks of its own.
  view.ticks = {
    ...ticks(from - span, to + span, scale, 42 * size.font, new Date(now)),
    scale, from: from - span, to: to + span, today, font: size.font,
  };
  return view.ticks;
}

// Rows

function paintBody(scene) {
  const { context, size, colours, items, scrollTop } = scene;
  paintGround(scene, size.top, size.height);
  const last = items[items.length - 1];
  const end = last ? size.top + last.y + last.height - scrollTop : size.top;
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

function paintRows(scene) {
  const { items, size, scrollTop } = scene;
  const heat = scene.data.settings.resolution > 0;
  if (heat && size.row < 3) {
    paintStrips(scene);
    paintNowLine(scene, size.top, size.height);
    return;
  }
  const rows = items.filter(({ kind }) => kind === "row");
  for (const item of rows) paintLoading(scene, item, size.top + item.y - scrollTop);
  paintBars(scene, rows, { texts: false });
  paintNowLine(scene, size.top, size.height);
  paintBars(scene, rows, { texts: true });
}

function paintLoading(scene, item, y) {
  const { context, size, colours, data, windows, x } = scene;
  for (const start of windows) {
    const state = data.stateOf(item.index, start);
    if (state === "ready" || (state === "loading" && data.before)) continue;
    const left = Math.max(size.left, x(start));
    const right = Math.min(size.width, x(start + data.settings.chunk));
    context.fillStyle = state === "failed" ? colours.closed : colours.sunken;
    context.fillRect(left, y + size.row * 0.25, right - left, size.row * 0.5);
    const words = { failed: "Not loaded. Select to try again.", late: "Still loading" }[state];
    if (!words || item.index % 5) continue; // Once in five rows is enough.
    const font = scene.font(12, state === "failed" ? 600 : 400);
    const colour = state === "failed" ? colours.closedHatch : colours.text2;
    text(context, words, left + 8, y + size.row / 2, font, colour, right - left - 12);
  }
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

// Paints the time axis

function paintGround({ context, size, colours, ticks: axis, x, now }, top, bottom) {
  context.fillStyle = colours.bg;
  for (const { start, end } of axis.shades) context.fillRect(x(start), top, x(end) - x(start), bottom - top);
  if (x(now) > size.left) context.fillRect(size.left, top, x(now) - size.left, bottom - top);
  stroke(context, colours.line, () => { for (const { time } of axis.lines) vertical(context, x(time), top, bottom); });
}

function paintNowLine({ context, colours, size, x, now }, top, bottom) {
  if (x(now) < size.left || x(now) > size.width) return;
  context.fillStyle = colours.text;
  context.fillRect(Math.round(x(now)) - 1, top, 2, bottom - top);
}

function paintAxis(scene) {
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

function paintNow(scene) {
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

// Paints the band of free capacity.

function paintBand(scene) {
  const { context, size, colours, view, windows } = scene;
  const top = size.axis;
  const bottom = size.top;
  paintGround(scene, top, bottom);
  for (const start of windows) paintAbsent(scene, start);
  if (view.needs) {
    const words = `Free capacity depends on what you reserve: ${view.needs.join(", ")}`;
    const left = size.left + 11 * size.font;
    text(context, words, left, (top + bottom) / 2, scene.font(12.5), colours.text2, size.body - 22);
  }
  const plot = bandPlot(view);
  const steps = view.bandSteps().filter(({ start, end }) => end > scene.from && start < scene.to);
  paintSteps(scene, steps, plot);
  paintNowLine(scene, top, bottom);
  paintBandOverlay(scene, plot);
  stroke(context, colours.line2, () => horizontal(context, bottom, size.left, size.width));
}

function paintAbsent(scene, start) {
  const { context, size, colours, data, x } = scene;
  const state = data.bandState(start);
  if (state === "ready" || state === "none") return;
  const left = Math.max(size.left, x(start));
  context.fillStyle = state === "failed" ? colours.closed : colours.sunken;
  context.fillRect(left, size.top - size.band * 0.4, x(start + data.settings.chunk) - left, size.band * 0.3);
  if (state !== "failed") return;
  const words = "Free capacity is not loaded. Select to try again.";
  text(context, words, left + 8, size.top - size.band / 4, scene.font(12, 600), colours.closedHatch);
}

function bandPlot(view) {
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
  context.beginPath();
  for (const run of runs(steps)) {
    stepLine(context, run, x, y);
    context.lineTo(x(run[run.length - 1].end), base);
    context.lineTo(x(run[0].start), base);
  }
  context.fill();
  context.fillStyle = hatch(context, colours, { colour: colours.cleaning, gap: 6, width: 1.2 });
  for (const { start, end, free } of steps) {
    if (free < state.amount) context.fillRect(x(start), y(state.amount), x(end) - x(start), y(free) - y(state.amount));
  }
  if (scene.view.needs) return;
  stroke(context, colours.bandLine, () => { for (const run of runs(steps)) stepLine(context, run, x, y); }, 2);
  context.setLineDash([5, 4]);
  stroke(context, colours.text, () => horizontal(context, y(state.amount), scene.size.left, scene.size.width));
  context.setLineDash([]);
}

/** Steps without gaps between them: a window that is not loaded leaves a gap. */
function runs(steps) {
  const list = [];
  for (const step of steps) {
    const run = list[list.length - 1];
    if (run && run[run.length - 1].end === step.start) run.push(step);
    else list.push([step]);
  }
  return list;
}

function stepLine(context, run, x, y) {
  context.moveTo(x(run[0].start), y(run[0].free));
  for (const { start, end, free } of run) {
    context.lineTo(x(start), y(free));
    context.lineTo(x(end), y(free));
  }
}
