// Paints what occupies the rows.

import { plain } from "../dom.js";
import { KIND } from "./intervals.js";
import { hatch } from "./palette.js";
import { leaseWords } from "../calendar/words.js";

const WITH_TEXT = [KIND.OWN, KIND.CLOSED, KIND.HELD];

/** Paint the bars of rows: those with a text, which lie over the line of now, or all others. */
export function paintBars(scene, rows, { texts }) {
  const { size, scrollTop, data, windows } = scene;
  for (const { index, y } of rows) {
    const top = size.top + y - scrollTop;
    const list = data.intervals(index, windows).filter(({ start, end }) => end > scene.from && start < scene.to);
    for (const interval of texts ? list : merged(list, scene.scale)) {
      if (WITH_TEXT.includes(interval.kind) === texts) bar(scene, interval, top);
    }
  }
}

// Below 5 px, bars of the same kind that nearly touch become one: nobody could tell them apart.
function merged(list, scale) {
  const near = 2 / scale;
  const narrow = 5 / scale;
  const result = [];
  for (const interval of list) {
    const last = result[result.length - 1];
    const alike = last && last.kind === interval.kind && interval.kind === KIND.TAKEN && interval.share === undefined;
    const small = alike && Math.min(interval.end - interval.start, last.end - last.start) < narrow;
    if (!small || interval.start - last.end >= near) result.push(interval);
    else result[result.length - 1] = { ...last, end: Math.max(last.end, interval.end) };
  }
  return result;
}

const DRAW = {
  [KIND.TAKEN]: taken, [KIND.OWN]: ownBar, [KIND.CLEANING]: cleaning, [KIND.CLOSED]: closed, [KIND.HELD]: held,
  [KIND.PREPARING]: preparing, [KIND.SHARED]: shared,
};

function bar(scene, interval, top) {
  const { x, size } = scene;
  // Far ends are cut, as canvas paths lose precision there; the round corners stay out of sight.
  const left = Math.max(size.left - 20, x(interval.start));
  const right = Math.min(size.width + 20, x(interval.end));
  const box = { left, top, width: Math.max(1, right - left), height: size.row };
  if (interval.share !== undefined) strip(scene, box, interval);
  else (DRAW[interval.kind] || taken)(scene, box, interval);
}

function rounded(context, left, top, width, height, radius) {
  context.beginPath();
  context.roundRect(left, top, width, height, Math.min(radius, width / 2));
}

function taken({ context, colours }, { left, top, width, height }) {
  const inset = height * 0.25;
  context.fillStyle = colours.taken;
  context.strokeStyle = colours.takenLine;
  context.lineWidth = 1;
  const y = Math.round(top + inset) - 0.5;
  rounded(context, left + 0.5, y, Math.max(0.5, width - 1), Math.round(height - 2 * inset), 3);
  context.fill();
  context.stroke();
}

// The share that is taken is drawn as height from the bottom of the row.
function shared({ context, colours }, { left, top, width, height }, { tenths }) {
  const tall = Math.max(2, (height - 8) * (tenths / 10));
  context.fillStyle = colours.taken;
  context.fillRect(left, top + height - 4 - tall, width, tall);
  context.fillStyle = colours.takenLine;
  context.fillRect(left, top + height - 4 - tall, width, 1.5);
}

function cleaning({ context, colours }, { left, top, width, height }) {
  context.fillStyle = colours.cleaning;
  const tall = width < 9 ? 5 : 8;
  const y = top + (height - tall) / 2;
  if (width < 9) return context.fillRect(left, y, Math.max(2, Math.min(4, width)), tall);
  for (let x = left + 2; x < left + width - 1; x += 4) context.fillRect(Math.round(x), y, 2, tall);
}

function preparing({ context, colours }, { left, top, width, height }) {
  context.save();
  context.translate(left, top);
  context.fillStyle = hatch(context, colours, { colour: colours.accent, gap: 5, width: 1.3, back: true });
  context.fillRect(0, height / 2 - 4, Math.max(3, width - 1), 8);
  context.restore();
}

function held(scene, { left, top, width, height }) {
  const { context, colours } = scene;
  context.strokeStyle = colours.takenLine;
  context.lineWidth = 1.5;
  context.setLineDash([4, 3]);
  rounded(context, left + 1, top + 5.5, Math.max(1, width - 2), height - 11, 4);
  context.stroke();
  context.setLineDash([]);
  label(scene, { left, top, width, height }, [["Held", 400, colours.text2]]);
}

function closed(scene, box) {
  const { context, colours, size } = scene;
  const { left, top, width, height } = box;
  context.save();
  context.translate(left, top + 3);
  context.fillStyle = hatch(context, colours, { colour: colours.closedHatch, fill: colours.closed, gap: 8, width: 2 });
  rounded(context, 0.5, 0.5, Math.max(1, width - 1), height - 7, 2);
  context.fill();
  context.strokeStyle = colours.closedHatch;
  context.lineWidth = 1;
  context.stroke();
  context.restore();
  const text = "Not bookable";
  const font = scene.font(12, 600);
  const from = Math.max(left, size.left) + 6;
  const wide = widthOf(context, text, font) + 12;
  if (left + width - from < wide + 4) return;
  context.fillStyle = colours.surface;
  rounded(context, from, top + 7, wide, height - 14, 2);
  context.fill();
  context.font = font;
  context.fillStyle = colours.closedHatch;
  context.textBaseline = "middle";
  context.fillText(text, from + 6, top + height / 2 + 0.5);
}

function ownBar(scene, box, interval) {
  const { context, colours, now } = scene;
  const { lease } = interval;
  if (!lease) return strip(scene, box, interval);
  const { words, look } = leaseWords(lease, interval, now);
  if (lease.mine === false) return foreignBar(scene, box, lease);
  const { left, top, width, height } = box;
  const filled = look === "running";
  rounded(context, left + 0.75, top + 3, Math.max(1.5, width - 1.5), height - 6.5, 5);
  context.fillStyle = filled ? colours.accent : look === "over" ? colours.sunken : colours.accentSoft;
  context.strokeStyle = look === "over" ? colours.line2 : colours.accent;
  context.lineWidth = 1.5;
  context.fill();
  context.stroke();
  const ink = filled ? colours.accentInk : look === "over" ? colours.text2 : colours.accentText;
  const room = lease.degraded ? degradedMark(scene, box, ink) : 0;
  const from = Math.max(left, scene.size.left) + room;
  const rest = { ...box, left: from, width: left + width - from };
  label(scene, rest, [[plain(lease.name), 600, ink], [`  ${words}`, 400, ink]]);
}

/** A triangle with an exclamation mark; returns the px that it takes. */
function degradedMark({ context, size }, { left, top, width, height }, ink) {
  const unit = size.font;
  const x = Math.max(left, size.left) + 14 * unit;
  if (x + 8 * unit > left + width) return 0;
  const y = top + height / 2;
  context.beginPath();
  context.moveTo(x, y - 6 * unit);
  context.lineTo(x + 6.5 * unit, y + 5 * unit);
  context.lineTo(x - 6.5 * unit, y + 5 * unit);
  context.closePath();
  // The mark is left out of the triangle, so that the bar shows through.
  context.rect(x - 0.8 * unit, y - 2.5 * unit, 1.6 * unit, 4 * unit);
  context.rect(x - 0.8 * unit, y + 2.4 * unit, 1.6 * unit, 1.4 * unit);
  context.fillStyle = ink;
  context.fill("evenodd");
  return 16 * unit;
}

// Operators who see all leases: of other projects the name, but quiet.
function foreignBar(scene, box, lease) {
  taken(scene, box);
  label(scene, box, [[plain(lease.name), 400, scene.colours.text]], 11);
}

// Buckets: the share of the time that is taken, as height. Own ones have no line on top.
function strip({ context, colours }, { left, top, width, height }, { kind, share = 9 }) {
  const own = kind === KIND.OWN;
  const tall = Math.max(own ? 4 : 2, (height - 8) * (share / 9));
  const y = Math.round(top + height - 4 - tall);
  context.fillStyle = own ? colours.accent : colours.taken;
  context.fillRect(left, y, width, top + height - 4 - y);
  if (own) return;
  context.fillStyle = colours.takenLine;
  context.fillRect(left, y, width, 1);
}

/** Text in the visible part of a bar: `[text, weight, colour]` one after the other. */
function label(scene, { left, top, width, height }, parts, px = 12.5) {
  const { context, size } = scene;
  let at = Math.max(left, size.left) + 8 * size.font;
  const end = Math.min(left + width, size.width) - 5;
  context.textBaseline = "middle";
  for (const [content, weight, colour] of parts) {
    if (end - at < 14) return;
    const font = scene.font(px, weight);
    const shown = fit(context, content, end - at, font);
    context.font = font;
    context.fillStyle = colour;
    context.fillText(shown, at, top + height / 2 + 0.5);
    if (shown !== content) return;
    at += widthOf(context, content, font);
  }
}

/** Rows too low for bars: one image of a px per bucket, scaled to its place. */
export function paintStrips(scene) {
  const { context, size, items, scrollTop, data, windows, colours, x, scale } = scene;
  const fills = { [KIND.OWN]: colours.accent, [KIND.TAKEN]: colours.takenLine };
  for (const { kind, index, y } of items) {
    if (kind !== "row") continue;
    const top = size.top + y - scrollTop;
    for (const interval of data.intervals(index, windows)) {
      if (interval.end <= scene.from || interval.start >= scene.to) continue;
      context.fillStyle = fills[interval.kind] ?? colours.taken;
      context.fillRect(x(interval.start), top, (interval.end - interval.start) * scale, size.row);
    }
  }
}
