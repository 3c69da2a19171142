// Paints the calendar on its canvas: which parts, and the rows.

import { offset, serverNow } from "../time.js";
import { paintAxis, paintGround, paintNow, paintNowLine } from "./axis.js";
import { paintBand } from "./band.js";
import { paintBars, paintStrips } from "./bars.js";
import { paintHeadings, paintNames } from "./names.js";
import { paintRowOverlay } from "./overlay.js";
import { clipped, horizontal, stroke, text } from "./pen.js";
import { ticks } from "../calendar/scale.js";
import { typeWords } from "../calendar/words.js";

/**
 * Paint a frame.
 * @param {{names: boolean, axis: boolean}} unchanged parts whose picture still holds: the left column; axis and band
 */
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
