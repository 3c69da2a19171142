// Paints the left column: zones, heading of the band, names of groups and rows.

import { plain } from "../dom.js";
import { fields, offset, zone, zoneName } from "../time.js";
import { horizontal, stroke, text, vertical, widthOf } from "./pen.js";
import { HOUR } from "../calendar/scale.js";
import { stateWords } from "../calendar/words.js";

/** Paint the names of groups and rows. */
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

/** The glyph of a row's state: dot, half-filled ring, power, open triangle. */
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

/** Paint the corner and the heading of the band. */
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
  const count = data.total;
  const how = view.needs ? "reserve with the form" : "drag here to reserve";
  const match = count === null || state.q ? how : `${count} match, ${how}`;
  return [`Any matching ${words.one}`, match, need];
}
