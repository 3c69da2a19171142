// Paints the band of free capacity.

import { paintGround, paintNowLine } from "./axis.js";
import { paintBandOverlay } from "./overlay.js";
import { hatch } from "./palette.js";
import { horizontal, stroke, text } from "./pen.js";

/** Paint the free capacity over time. */
export function paintBand(scene) {
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
