// Strokes and texts on the canvas.

/** Call `draw` for a rectangle in the colour of the surface; nothing is drawn outside of it. */
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
  context.fillText(room === undefined ? content : fit(context, content, room, font), x, y);
}

const widths = new Map(); // by font, then by text: measuring costs more than drawing

/** The width of a text in a font. */
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
