// Paints the rows of the chart: names, groups, bars and strips.

import { HOUR, leaseWords, stateWords } from "../calendar/scale.js";
import { plain } from "../dom.js";
import { fields, offset, zone, zoneName } from "../time.js";
import { KIND } from "./data.js";
import { fit, hatch, horizontal, stroke, text, vertical, widthOf } from "./drawing.js";

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

// Paints the left column

export function paintNames(scene) {
  const { context, size, colours, items, scrollTop, data } = scene;
  for (const item of items) {
    const y = size.top + item.y - scrollTop;
    if (item.kind === "group") paintGroupName(scene, item, y);
    else if (size.row >= 12) paintName(scene, data.row(item.index), y);
  }
  stroke(context, colours.line, () => {
    for (const { y, height } of size.row >= 8 ? items : []) {
      horizontal(context, size.top + y + height - scrollTop, 0, size.left);
    }
    vertical(context, size.left - 1, size.top, size.height);
  });
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
  text(context, name, left, y + height / 2, font, colours.text, size.left - left - 8);
  if (!size.phone || group.free_now === undefined) return;
  const after = left + widthOf(context, name, font) + 8;
  const label = `${group.free_now} of ${group.rows} free`;
  const short = `${group.free_now} of ${group.rows}`;
  const room = size.left - after - 4;
  const content = [label, short].find((candidate) => widthOf(context, candidate, scene.font(12)) <= room);
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
  const wordsWidth = words ? widthOf(context, words, scene.font(12)) : 0;
  const right = size.left - 12 * size.font;
  const room = right - left - (wordsWidth ? wordsWidth + 8 : 0);
  text(context, plain(row.name), left, middle + 0.5, scene.font(13.5), colours.text, room);
  if (words) text(context, words, right - wordsWidth, middle + 0.5, scene.font(12), colours.text2);
}

function glyph(context, state, x, y, radius, colours) {
  if (state === "preparing") return half(context, x, y, radius, colours.accent);
  if (state === "off") return power(context, x, y, radius, colours.text2);
  if (state === "set_aside") return triangle(context, x, y, radius, colours.closedHatch, false);
  if (state === "failing") return triangle(context, x, y, radius, colours.closedHatch, true);
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

function triangle(context, x, y, radius, colour, withMark) {
  const draw = () => {
    context.moveTo(x, y - radius);
    context.lineTo(x + radius * 1.1, y + radius * 0.9);
    context.lineTo(x - radius * 1.1, y + radius * 0.9);
    context.closePath();
  };
  stroke(context, colour, draw, 1.6);
  const mark = () => {
    context.moveTo(x, y - radius * 0.35);
    context.lineTo(x, y + radius * 0.55);
  };
  if (withMark) stroke(context, colour, mark, 1.6);
}

export function paintHeadings(scene) {
  const { context, size, colours } = scene;
  context.fillStyle = colours.surface;
  context.fillRect(0, 0, size.left, size.top);
  stroke(context, colours.line, () => vertical(context, size.left - 1, 0, size.top));
  const left = 14 * size.font;
  const room = size.left - left - 8;
  const [upper, lower] = corner(scene);
  text(context, upper, left, size.axis * 0.34, scene.font(12.5), colours.text2, room);
  text(context, lower, left, size.axis * 0.72, scene.font(12.5), colours.text2, room);
  const lines = bandHeading(scene);
  const step = (size.phone ? 19 : 20) * size.font;
  const first = size.axis + size.band * (size.phone ? 0.3 : 0.26);
  lines.forEach((line, index) => {
    const font = index ? scene.font(12.5) : scene.font(13.5, 600);
    text(context, line, left, first + index * step, font, index ? colours.text2 : colours.text, room);
  });
  stroke(context, colours.line2, () => {
    horizontal(context, size.axis, 0, size.left);
    horizontal(context, size.top, 0, size.left);
  });
}

function corner({ size, ticks: axis, from, now }) {
  const zone = size.phone ? zoneName() : `${zoneName()} time`;
  if (axis.wholeDays) return [zone, daysStart(size, now)];
  const date = dateLabel(from + 0.5 * HOUR);
  const long = axis.top.some(({ text: label }) => label.includes(":"));
  if (!long) return [zone, "UTC"];
  return [size.phone ? date : `${date}, ${zone}`, "UTC"];
}

let lastDate = { key: "", label: "" };

// Formatting takes longer than drawing, so it is done once for a quarter of an hour: that holds in each zone.
function dateLabel(time) {
  const key = `${zone()} ${Math.floor(time / 900_000)}`;
  if (lastDate.key !== key) {
    const { weekday, day, monthName } = fields(new Date(time));
    lastDate = { key, label: `${weekday} ${day} ${monthName}` };
  }
  return lastDate.label;
}

function daysStart(size, now) {
  const { hour, minute } = fields(new Date(86_400_000 * 2 - offset(new Date(now))), "UTC");
  const time = `${String(hour).padStart(2, "0")}:${String(minute).padStart(2, "0")} UTC`;
  return size.phone ? time : `Days start at ${time}`;
}

function bandHeading({ size, state, data, words, view }) {
  const need = `- - - you need ${state.amount}`;
  if (size.phone) return [`Any ${words.one}`, view.needs ? "use the form" : "drag here", `- - need ${state.amount}`];
  const count = data.reservable;
  const how = view.needs ? "reserve with the form" : "drag here to reserve";
  const match = count === null || state.q ? how : `${count} match, ${how}`;
  return [`Any matching ${words.one}`, match, need];
}
