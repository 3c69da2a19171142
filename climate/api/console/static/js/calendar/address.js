// The state of the calendar in the address, so that a link shows a colleague the same.

import { iso, midnight, serverNow } from "../time.js";
import { DAY, HOUR, snapTo, ZOOMS } from "./scale.js";

const KEYS = ["type", "properties", "amount", "for", "group", "q", "whose", "rows", "zoom", "from"];

/**
 * The state that an address names.
 * @param {URLSearchParams} params
 * @param {string[]} types resource types that the calendar can show
 * @param {{zoom: string, groupBy: string|null}} defaults
 */
export function stateOf(params, types, defaults) {
  const zoom = ZOOMS.includes(params.get("zoom")) ? params.get("zoom") : defaults.zoom;
  return {
    resourceType: types.includes(params.get("type")) ? params.get("type") : types[0],
    properties: expression(params.get("properties")),
    amount: positive(params.get("amount")) ?? 1,
    duration: positive(params.get("for")) ?? 3600 * 8,
    groupBy: params.get("group") ?? defaults.groupBy,
    q: params.get("q") ?? "",
    whose: params.get("whose") === "all" ? "all" : null,
    density: params.get("rows") === "overview" ? "overview" : "rows",
    zoom,
    from: moment(params.get("from")) ?? defaultFrom(zoom),
  };
}

function expression(text) {
  try {
    const value = JSON.parse(text ?? "null");
    return Array.isArray(value) && value.length ? value : null;
  } catch {
    return null;
  }
}

function positive(text) {
  const number = Number(text);
  return Number.isInteger(number) && number > 0 && number < 1e9 ? number : null;
}

function moment(text) {
  const time = Date.parse(text ?? "");
  return Number.isFinite(time) && Math.abs(time) < 8e15 ? time : null;
}

/** Where a zoom level begins when nothing else is said: now is in sight, with some past before it. */
export function defaultFrom(zoom) {
  const now = serverNow();
  if (zoom === "hour" || zoom === "day") return snapTo(now.getTime() - HOUR, 2 * HOUR);
  if (zoom === "week") return midnight(now, -1).getTime();
  return midnight(new Date(now.getTime() - (zoom === "month" ? 3 : 7) * DAY)).getTime();
}

/** The query of a state; keys of other parts of the page stay. */
export function queryOf(state, search) {
  const params = new URLSearchParams(search);
  for (const key of KEYS) params.delete(key);
  const values = {
    type: state.resourceType, properties: state.properties && JSON.stringify(state.properties),
    amount: state.amount === 1 ? null : state.amount, for: state.duration === 28_800 ? null : state.duration,
    group: state.groupBy, q: state.q, whose: state.whose, rows: state.density === "overview" ? "overview" : null,
    zoom: state.zoom, from: iso(new Date(state.from)),
  };
  for (const [key, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== "") params.set(key, value);
  }
  return `?${params}`;
}
