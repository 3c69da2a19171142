// The limits of the project and of the user, as bars.

import { h, link } from "../dom.js";
import { duration } from "../time.js";
import { meter } from "./parts.js";

/** The bars of the limits that apply; null if there are none. `limits`: the body of GET /v2/limits. */
export function limitMeters(limits, { title = true } = {}) {
  if (!limits || limits.error || !limits.apply) return null;
  const parts = limits.parties.map((party) => [party, bars(party, limits.period)]).filter(([, list]) => list.length);
  if (!parts.length) return null;
  return parts.map(([{ scope }, list]) => [
    title ? h("h2", {}, scope === "project" ? "Your project\u2019s limits" : "Your limits")
      : h("h3", {}, scope === "project" ? "Your project" : "You"), list])
    .concat([h("p", { class: "small" }, link("/console/limits", "All limits"))]);
}

function bars({ limits, used }, period) {
  const rows = [
    ["Leases", "leases"], ["Hosts at once", "hosts"], ["vCPUs at once", "vcpus"],
    [`Host hours in ${duration(period)}`, "host_hours"],
  ];
  return rows.filter(([, key]) => limits[key] !== null && limits[key] !== undefined)
    .map(([text, key]) => meter(text, used[key], limits[key]));
}
