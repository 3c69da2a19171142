// The colours of the canvas: the tokens of the style sheet, so that themes and forced colours apply.

const NAMES = ["bg", "surface", "sunken", "line", "line-2", "text", "text-2", "accent", "accent-ink", "accent-soft",
  "accent-text", "taken", "taken-line", "closed", "closed-hatch", "cleaning", "bad", "bad-soft", "focus", "band",
  "band-line"];

/**
 * Read the colours and fonts that apply to `element`.
 * @returns {Object<string, string>} by token (`accentInk` of `--accent-ink`), and `sans`, the font family
 */
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

/**
 * A pattern of diagonal lines.
 * @param {CanvasRenderingContext2D} context
 * @param {object} colours
 * @param {{colour: string, fill?: string, gap: number, width: number, back?: boolean}} look `back`: falling lines
 */
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
