// Sizes of the calendar's parts, and what lies where. Client coordinates are those of pointer events.

import { intervalAt } from "../chart/intervals.js";
import { itemAt, itemOfRow } from "../chart/layout.js";

const EDGE = 6; // px around the ends of a bar that take hold of the end

/** The sizes in px: they follow the size of the text (`font` is 1 at 15 px). */
export function measure({ clientWidth: width, clientHeight: height }, density) {
  const font = parseFloat(getComputedStyle(document.documentElement).fontSize) / 15;
  const phone = width / font < 700;
  const left = Math.round(Math.min((phone ? 104 : 213) * font, width * 0.4));
  const axis = Math.round(52 * font);
  const band = Math.round((phone ? 76 : 92) * font);
  const row = density === "overview" ? 2 : Math.round((phone ? 34 : 30) * font);
  return {
    width, height, font, phone, left, axis, band, row, group: Math.round(34 * font), top: axis + band,
    body: Math.max(40, width - left), ratio: Math.min(3, devicePixelRatio || 1),
  };
}

/**
 * What lies at a client position of a view.
 * @returns {object} `{area, row, interval, edge, time, heading}`; `heading`: in the left column
 */
export function hitAt(view, clientX, clientY) {
  const { size } = view;
  const box = view.element.getBoundingClientRect();
  const x = clientX - box.left;
  const y = clientY - box.top;
  const time = view.timeAt(clientX);
  const outside = { area: "outside", row: null, interval: null, edge: null, time, heading: x < size.left };
  if (x < 0 || y < 0 || x >= size.width || y >= size.height) return outside;
  if (y < size.axis) return { ...outside, area: "axis" };
  if (y < size.top) return { ...outside, area: "band" };
  const item = itemAt(view.layout, y - size.top + view.element.scrollTop);
  if (!item) return outside;
  if (item.kind === "group") return { ...outside, area: "group", group: item.group };
  const row = view.data.row(item.index) ?? { id: null, name: "", state: null, index: item.index };
  return { ...outside, area: "row", row, ...(outside.heading ? null : intervalHit(view, item.index, time)) };
}

function intervalHit(view, index, time) {
  const list = view.intervals(index);
  const near = EDGE / view.scale;
  const within = intervalAt(list, time);
  const touched = within ?? intervalAt(list, time - near) ?? intervalAt(list, time + near);
  const edge = touched?.lease ? edgeAt(touched, time, near) : null;
  return { interval: edge ? touched : within, edge };
}

// A bar that is too narrow for two handles keeps that of its end.
function edgeAt({ start, end }, time, near) {
  if (Math.abs(end - time) <= near) return "end";
  return Math.abs(start - time) <= near && end - start > 3 * near ? "start" : null;
}

/** The client rectangle of what an overlay marks, as far as it is in sight of the view. */
export function anchorOf(view, overlay) {
  const { size } = view;
  const box = view.element.getBoundingClientRect();
  const clampX = (x) => Math.min(box.left + size.width, Math.max(box.left + size.left, x));
  const start = clampX(view.xOf(overlay.start));
  const end = clampX(view.xOf(overlay.end));
  const [top, bottom] = rowsSpan(view, overlay.place === "rows" ? overlay.rows : [], box)
    ?? [box.top + size.axis, box.top + size.top];
  return new DOMRect(Math.min(start, end), top, Math.max(1, end - start), Math.max(1, bottom - top));
}

function rowsSpan(view, ids, box) {
  const { size } = view;
  const items = ids.map((id) => view.data.indexOf(id)).filter((index) => index !== null)
    .map((index) => itemOfRow(view.layout, index)).filter(Boolean);
  const tops = items.map(({ y }) => size.top + y - view.element.scrollTop);
  if (!tops.length) return null;
  const clampY = (y) => Math.min(box.bottom, Math.max(box.top + size.top, box.top + y));
  return [clampY(Math.min(...tops)), clampY(Math.max(...tops) + size.row)];
}
