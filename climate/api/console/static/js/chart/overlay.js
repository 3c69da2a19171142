// Paints selections, refusals and alternatives over band and rows.

import { itemOfRow } from "./layout.js";
import { hatch } from "./palette.js";
import { fit, text, widthOf } from "./pen.js";

/** Paint the overlay's part in the band. */
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

/** Paint the overlay's part in the rows. */
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
