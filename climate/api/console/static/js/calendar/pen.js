// Strokes and texts on the canvas.

/** Draw inside a rectangle only. */
export function clipped(context, x, y, width, height, draw) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  draw();
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

/** Stroke what `draw` adds to the path. */
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
