// Where groups and rows lie in the sheet. Pure functions; `y` is px from the top of the first group or row.

/**
 * @param {{total: number, groups: {name: string, first: number, rows: number}[]|null, folded: Set<string>,
 *   rowHeight: number, groupHeight: number}} options
 * @returns {{height: number, items: number, rowHeight: number, groupHeight: number, parts: object[]}} parts in order:
 *   `{group, y, top, first, rows, item}`; `y` of the header, `top` of the first row, `item` counts headers and rows
 */
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

/** The item with the number `number` (0 is the first header or row); null if there is none. */
export function itemNumber(layout, number) {
  if (number < 0 || number >= layout.items) return null;
  const part = lastPart(layout.parts, (candidate) => candidate.item <= number);
  const within = number - part.item - (part.group ? 1 : 0);
  return within < 0 ? header(layout, part) : rowItem(layout, part, within);
}

/** The item of the row `index`, or of the folded group that hides it; null if there is none. */
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
