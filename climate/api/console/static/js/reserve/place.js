// Where the card goes: beside the selection, never over the ghosts if there is another place. Pure.

const GAP = 10;

/**
 * @param {{width: number, height: number}} card
 * @param {{left: number, right: number, top: number, bottom: number}} anchor the selection
 * @param {{left: number, right: number, top: number, bottom: number}} bounds where the card may be
 * @param {{place: "band"|"rows", avoid: {left: number, right: number, weight: number}[]}} options columns to keep free
 * @returns {{left: number, top: number}}
 */
export function placeCard(card, anchor, bounds, { place, avoid }) {
  const top = clamp(place === "band" ? anchor.bottom + GAP : anchor.top, bounds.top, Math.max(bounds.top, bounds.bottom - card.height));
  const last = Math.max(bounds.left, bounds.right - card.width);
  const furthest = Math.max(anchor.right, ...avoid.map(({ right }) => right).filter((x) => x < bounds.right - card.width));
  const beside = [anchor.left - GAP - card.width, anchor.right + GAP, furthest + GAP, bounds.left, last, (anchor.left + anchor.right - card.width) / 2];
  const candidates = beside.map((left, rank) => ({ left: clamp(left, bounds.left, last), rank }));
  const columns = [{ left: anchor.left, right: anchor.right, weight: 2 }, ...avoid];
  const costs = candidates.map(({ left, rank }) => rank + 10 * columns.reduce((sum, column) => sum + column.weight * covered(left, card.width, column), 0));
  return { left: candidates[costs.indexOf(Math.min(...costs))].left, top };
}

/** The share of the column that the card covers, from 0 to 1. */
function covered(left, width, column) {
  const size = Math.max(1, column.right - column.left);
  return Math.max(0, Math.min(left + width, column.right) - Math.max(left, column.left)) / size;
}

function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}
