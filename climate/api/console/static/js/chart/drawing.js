// What painting needs: strokes, text, colours, hatches, the places of rows, and the overlay of a selection.

/** Call `draw` for a rectangle in the colour of the surface. */
export function clipped(scene, x, y, width, height, draw) {
  const { context, colours } = scene;
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.fillStyle = colours.surface;
  context.fillRect(x, y, width, height);
  draw(scene);
  context.restore();
}

/** A crisp vertical line of one px. */
export function vertical(context, x, top, bottom) {
  context.moveTo(Math.round(x) + 0.5, top);
  context.lineTo(Math.round(x) + 0.5, bottom);
}

/** A crisp horizontal line of one px, above y. */
export function horizontal(context, y, left, right) {
  context.moveTo(left, Math.round(y) - 0.5);
  context.lineTo(right, Math.round(y) - 0.5);
}

export function stroke(context, colour, draw, width = 1) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.beginPath();
  draw();
  context.stroke();
}

/** Write a text, shortened to `room` px if that is given. */
export function text(context, content, x, y, font, colour, room) {
  context.font = font;
  context.fillStyle = colour;
  context.textBaseline = "middle";
  context.fillText(room === undefined ? content : fit(context, content, room, font), x, y);
}

const widths = new Map(); // by font, then by text: measuring costs more than drawing

export function widthOf(context, content, font) {
  let known = widths.get(font);
  if (!known || known.size > 5000) widths.set(font, (known = new Map()));
  let width = known.get(content);
  if (width === undefined) {
    context.font = font;
    width = context.measureText(content).width;
    known.set(content, width);
  }
  return width;
}

/** The text, shortened with an ellipsis to `room` px. */
export function fit(context, content, room, font) {
  const width = widthOf(context, content, font);
  if (width <= room) return content;
  let length = Math.floor((content.length * room) / width);
  while (length > 0 && widthOf(context, `${content.slice(0, length)}\u2026`, font) > room) length -= 1;
  return length > 0 ? `${content.slice(0, length)}\u2026` : "";
}

// The colours of the canvas

const NAMES = ["bg", "surface", "sunken", "line", "line-2", "text", "text-2", "accent", "accent-ink", "accent-soft",
  "accent-text", "taken", "taken-line", "closed", "closed-hatch", "cleaning", "bad", "bad-soft", "focus", "band",
  "band-line"];

/** Read the colours and fonts that apply to `element`. */
export function palette(element) {
  const probe = document.createElement("i");
  probe.className = "calendar-probe";
  element.append(probe);
  const colours = { patterns: new Map(), fonts: new Map() };
  for (const name of NAMES) {
    probe.style.color = `var(--${name})`;
    colours[name.replace(/-(\w)/g, (_all, letter) => letter.toUpperCase())] = getComputedStyle(probe).color;
  }
  colours.sans = getComputedStyle(probe).fontFamily;
  probe.remove();
  return colours;
}

/** A pattern of diagonal lines. */
export function hatch(context, colours, look) {
  const ratio = context.getTransform().a;
  const key = `${look.colour} ${look.fill} ${look.gap} ${look.width} ${look.back} ${ratio}`;
  if (!colours.patterns.has(key)) colours.patterns.set(key, makeHatch(context, look, ratio));
  return colours.patterns.get(key);
}

function makeHatch(context, { colour, fill, gap, width, back }, ratio) {
  const size = Math.round(gap * ratio);
  const tile = document.createElement("canvas");
  tile.width = size;
  tile.height = size;
  const pen = tile.getContext("2d");
  if (fill) {
    pen.fillStyle = fill;
    pen.fillRect(0, 0, size, size);
  }
  pen.strokeStyle = colour;
  pen.lineWidth = width * ratio;
  pen.beginPath();
  for (const shift of [-size, 0, size]) {
    pen.moveTo(shift - size / 2, back ? -size / 2 : size * 1.5);
    pen.lineTo(shift + size * 1.5, back ? size * 1.5 : -size / 2);
  }
  pen.stroke();
  const pattern = context.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix([1 / ratio, 0, 0, 1 / ratio, 0, 0]));
  return pattern;
}

// Where groups and rows lie in the sheet.

export function layOut({ total, groups, folded, rowHeight, groupHeight }) {
  const parts = [];
  let y = 0;
  let item = 0;
  for (const group of groups && groups.length ? groups : [{ name: null, first: 0, rows: total }]) {
    const header = group.name === null ? 0 : groupHeight;
    const rows = group.name !== null && folded.has(group.name) ? 0 : group.rows;
    parts.push({ group: header ? group : null, y, top: y + header, first: group.first, rows, item });
    y += header + rows * rowHeight;
    item += (header ? 1 : 0) + rows;
  }
  return { height: y, items: item, rowHeight, groupHeight, parts };
}

/** The group header or row at `y`: `{kind, group, index, y, height, item}`; null outside. */
export function itemAt(layout, y) {
  if (y < 0 || y >= layout.height) return null;
  return itemOf(layout, lastPart(layout.parts, (part) => part.y <= y), y);
}

function itemOf(layout, part, y) {
  if (y < part.top) return header(layout, part);
  const row = Math.min(part.rows - 1, Math.floor((y - part.top) / layout.rowHeight));
  return rowItem(layout, part, row);
}

function header(layout, part) {
  return { kind: "group", group: part.group, index: null, y: part.y, height: layout.groupHeight, item: part.item };
}

function rowItem(layout, part, row) {
  return {
    kind: "row", group: part.group, index: part.first + row, y: part.top + row * layout.rowHeight,
    height: layout.rowHeight, item: part.item + (part.group ? 1 : 0) + row,
  };
}

function lastPart(parts, test) {
  let low = 0;
  let high = parts.length - 1;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (test(parts[middle])) low = middle;
    else high = middle - 1;
  }
  return parts[low];
}

/** The headers and rows between `from` and `to` px, in order. */
export function itemsBetween(layout, from, to) {
  const items = [];
  let item = itemAt(layout, Math.max(0, from));
  while (item && item.y < to) {
    items.push(item);
    item = itemAt(layout, item.y + item.height);
  }
  return items;
}

/** The item with the number `number` (0 is the first header or row). */
export function itemNumber(layout, number) {
  if (number < 0 || number >= layout.items) return null;
  const part = lastPart(layout.parts, (candidate) => candidate.item <= number);
  const within = number - part.item - (part.group ? 1 : 0);
  return within < 0 ? header(layout, part) : rowItem(layout, part, within);
}

export function itemOfRow(layout, index) {
  if (!layout.parts.length) return null;
  const part = lastPart(layout.parts, (candidate) => candidate.first <= index);
  const row = index - part.first;
  if (row >= 0 && row < part.rows) return rowItem(layout, part, row);
  return part.group ? header(layout, part) : null;
}

/** The ranges of row numbers among `items`: `[first, last]`, consecutive rows joined. */
export function rowRanges(items) {
  const ranges = [];
  for (const { kind, index } of items) {
    if (kind !== "row") continue;
    const last = ranges[ranges.length - 1];
    if (last && last[1] === index - 1) last[1] = index;
    else ranges.push([index, index]);
  }
  return ranges;
}

// Paints selections, refusals and alternatives over band and rows.

export function paintBandOverlay(scene, plot) {
  const { overlay, size } = scene;
  if (!overlay) return;
  const top = size.axis + 6;
  const height = size.band - 12;
  if (overlay.place !== "rows") paintSelection(scene, overlay, top, height, plot);
  for (const blocked of overlay.blocked || []) paintBlocked(scene, blocked, size.top - 9);
  for (const ghost of overlay.ghosts || []) paintBandGhost(scene, overlay, ghost, top, height);
  if (overlay.place !== "rows") paintPlate(scene, overlay, top + height / 2);
}

// A ghost over the selection leaves its text free: no fill, and the letter in the corner.
function paintBandGhost(scene, overlay, ghost, top, height) {
  const over = overlay.place !== "rows" && ghost.start < overlay.end && ghost.end > overlay.start;
  const { left, width } = spanOf(scene, ghost);
  outlineGhost(scene, ghost, top, height, over ? 0 : 0.6);
  const radius = Math.min(10.5 * scene.size.font, height / 2 - 2);
  if (over) paintDisc(scene, ghost.letter, left + radius + 4, top + radius + 3, radius);
  else paintDisc(scene, ghost.letter, left + width / 2, top + height / 2, radius);
}

function paintBlocked({ context, colours, x }, { start, end }, y) {
  context.fillStyle = colours.bad;
  context.fillRect(x(start), y, Math.max(2, x(end) - x(start)), 4);
}

export function paintRowOverlay(scene) {
  const { overlay, size } = scene;
  if (!overlay) return;
  for (const [y, id] of rowsInSight(scene, overlay.place === "rows" ? overlay.rows : [])) {
    paintBox(scene, overlay, y + 2, size.row - 4);
    if (id === overlay.rows[0]) paintPlate(scene, overlay, y + size.row / 2);
  }
  for (const [y] of rowsInSight(scene, overlay.ticked || [])) paintTick(scene, overlay, y);
  for (const ghost of overlay.ghosts || []) {
    for (const [y] of rowsInSight(scene, ghost.rows || [])) paintRowGhost(scene, ghost, y + 2, size.row - 4);
  }
}

function* rowsInSight({ view, size, scrollTop }, ids) {
  for (const id of ids) {
    const index = view.data.indexOf(id);
    const item = index === null ? null : itemOfRow(view.layout, index);
    if (!item || item.kind !== "row") continue;
    const y = size.top + item.y - scrollTop;
    if (y + size.row > size.top && y < size.height) yield [y, id];
  }
}

function spanOf({ x, size }, { start, end }) {
  const left = Math.max(size.left - 20, x(start));
  return { left, width: Math.max(2, Math.min(size.width + 20, x(end)) - left) };
}

function paintSelection(scene, overlay, top, height, plot) {
  const { context, colours } = scene;
  paintBox(scene, overlay, top, height);
  if (overlay.floor !== null && overlay.floor !== undefined) {
    const { left, width } = spanOf(scene, overlay);
    context.globalAlpha = 0.55;
    context.fillStyle = toneOf(overlay) === "bad" ? colours.bad : colours.accent;
    const y = plot.y(overlay.floor);
    context.fillRect(left + 1, y, width - 2, Math.max(0, top + height - y - 1));
    context.globalAlpha = 1;
  }
}

const toneOf = (overlay) => overlay.tone ?? (overlay.kind === "refused" ? "bad" : "good");

function paintBox(scene, overlay, top, height) {
  const { context, colours } = scene;
  const { left, width } = spanOf(scene, overlay);
  const bad = toneOf(overlay) === "bad";
  context.save();
  context.translate(left, top);
  context.beginPath();
  context.roundRect(1, 0, Math.max(1, width - 2), height, Math.min(5, width / 2));
  context.globalAlpha = bad ? 0.8 : 0.65;
  context.fillStyle = bad ? colours.badSoft : colours.accentSoft;
  context.fill();
  context.globalAlpha = 1;
  if (bad) {
    context.fillStyle = hatch(context, colours, { colour: colours.bad, gap: 7, width: 1 });
    context.fill();
  }
  context.strokeStyle = bad ? colours.bad : colours.accent;
  context.lineWidth = 2;
  if (overlay.kind === "reserving" || overlay.kind === "moving") context.setLineDash([6, 4]);
  context.stroke();
  context.restore();
}

function paintPlate(scene, overlay, middle) {
  if (!overlay.label) return;
  const { context, colours, size } = scene;
  const { left, width } = spanOf(scene, overlay);
  const font = scene.font(12.5, 600);
  const label = fit(context, overlay.label, size.body - 24, font);
  const wide = widthOf(context, label, font) + 20 * size.font;
  const tall = Math.min(26 * size.font, size.band - 12);
  const from = Math.max(size.left + 4, Math.min(size.width - wide - 4, left + (width - wide) / 2));
  const colour = toneOf(overlay) === "bad" ? colours.bad : colours.accent;
  context.beginPath();
  context.roundRect(from, middle - tall / 2, wide, tall, 5);
  context.fillStyle = colours.surface;
  context.fill();
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.stroke();
  context.fillStyle = toneOf(overlay) === "bad" ? colours.bad : colours.accentText;
  context.font = font;
  context.textBaseline = "middle";
  context.fillText(label, from + 10 * size.font, middle + 0.5);
}

function paintTick(scene, overlay, y) {
  const { context, colours, size } = scene;
  paintBox(scene, { ...overlay, tone: "good", kind: "selection" }, y + 3, size.row - 6.5);
  const { left, width } = spanOf(scene, overlay);
  if (width < 14) return;
  const middle = (Math.max(left, size.left) + Math.min(left + width, size.width)) / 2;
  const unit = size.row / 8;
  context.strokeStyle = colours.accentText;
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(middle - unit * 1.4, y + size.row / 2);
  context.lineTo(middle - unit * 0.4, y + size.row / 2 + unit);
  context.lineTo(middle + unit * 1.5, y + size.row / 2 - unit);
  context.stroke();
}

function outlineGhost(scene, ghost, top, height, opacity) {
  const { context, colours } = scene;
  const { left, width } = spanOf(scene, ghost);
  context.beginPath();
  context.roundRect(left + 1, top + 0.5, Math.max(2, width - 2), height - 1, Math.min(6, width / 2));
  context.globalAlpha = opacity;
  context.fillStyle = colours.accentSoft;
  context.fill();
  context.globalAlpha = 1;
  context.strokeStyle = colours.accent;
  context.lineWidth = ghost.focused ? 2.5 : 1.5;
  context.setLineDash([6, 4]);
  context.stroke();
  context.setLineDash([]);
}

function paintRowGhost(scene, ghost, top, height) {
  const { context, colours, size } = scene;
  const { left, width } = spanOf(scene, ghost);
  outlineGhost(scene, ghost, top, height, 1);
  const radius = Math.min(10.5 * size.font, height / 2 - 2);
  const x = width > radius * 3 ? Math.max(left, size.left) + radius + 6 : left + width / 2;
  paintDisc(scene, ghost.letter, x, top + height / 2, radius);
  if (width < 70) return;
  const font = scene.font(12.5);
  const room = left + width - x - radius - 10;
  text(context, "free here", x + radius + 5, top + height / 2 + 0.5, font, colours.accentText, room);
}

function paintDisc(scene, letter, x, y, radius) {
  const { context, colours } = scene;
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fillStyle = colours.accent;
  context.fill();
  context.font = scene.font(12, 700);
  context.fillStyle = colours.accentInk;
  context.textBaseline = "middle";
  context.textAlign = "center";
  context.fillText(letter, x, y + 0.5);
  context.textAlign = "start";
}
