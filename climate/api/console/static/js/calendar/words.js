// What the calendar calls things. Pure functions.

import { plain } from "../dom.js";
import { clock, day, duration, moment, offset, offsetName, range, serverNow, shortMoment } from "../time.js";
import { KIND } from "../chart/intervals.js";

const TYPES = {
  "physical:host": ["Hosts", "host", "hosts"],
  "virtual:instance": ["Instances", "instance", "instances"],
  "flavor:instance": ["Flavors", "instance", "instances"],
  "virtual:floatingip": ["Addresses", "address", "addresses"],
  "physical:volume": ["Volumes", "volume", "volumes"],
  volume: ["Volumes", "volume", "volumes"],
  network: ["Networks", "network", "networks"],
  device: ["Devices", "device", "devices"],
};

/** The words for a resource type: `{title, one, many}`. */
export function typeWords(type) {
  const known = TYPES[type] || Object.entries(TYPES).find(([key]) => type.endsWith(`:${key}`))?.[1];
  if (known) return { title: known[0], one: known[1], many: known[2] };
  const last = plain(type.split(":").pop());
  return { title: last[0]?.toUpperCase() + last.slice(1), one: last, many: `${last}s` };
}

const STATES = {
  ready: "", preparing: "getting ready", off: "off, bookable", set_aside: "set aside", failing: "failing",
};

/** What a row's state is called; empty for "ready". */
export function stateWords(state) {
  return STATES[state] ?? plain(state ?? "");
}

const STATUSES = {
  ACTIVE: "running", STARTING: "starting", TERMINATING: "ending", UPDATING: "changing", CREATING: "being created",
  DELETING: "being deleted", ERROR: "failed", TERMINATED: "ended",
};

/** How a lease stands: `{words, look}`; look: "running", "later" or "over". */
export function leaseWords(lease, interval, now = serverNow().getTime()) {
  const start = Date.parse(lease.start ?? "") || interval.start;
  const end = Date.parse(lease.end ?? "") || interval.end;
  const status = lease.status;
  if (status === "TERMINATED" || end <= now) return { words: "ended", look: "over" };
  if (status === "PENDING" || (!STATUSES[status] && start > now)) {
    const near = Math.abs(start - interval.start) < 1000 && day(new Date(start)) === day(new Date(interval.start));
    return { words: `from ${near ? clock(new Date(start)) : shortMoment(new Date(start))}`, look: "later" };
  }
  return { words: STATUSES[status] || "running", look: start > now ? "later" : "running" };
}

const OTHERS = {
  [KIND.TAKEN]: "Taken", [KIND.CLOSED]: "Not bookable", [KIND.HELD]: "Held", [KIND.PREPARING]: "Getting ready",
};

/** What occupies a cell: "free", "taken", "ablation-7, running, degraded". */
export function cellWords({ kind, lease, tenths, start, end, share }) {
  if (kind === null) return "Free";
  if (kind === KIND.OWN && lease) {
    const { words } = leaseWords(lease, { start, end });
    const whose = lease.mine === false ? "of another project, " : "";
    return `${plain(lease.name)}, ${whose}${words}${lease.degraded ? ", degraded" : ""}`;
  }
  if (kind === KIND.OWN) return "Yours";
  if (kind === KIND.CLEANING) return `Cleaning, ${duration((end - start) / 1000)}`;
  if (kind === KIND.SHARED) return `${tenths * 10} % taken${share === undefined ? "" : " of the time"}`;
  return OTHERS[kind];
}

/** A span in the chosen zone: "Tue 14:00 to Tue 22:00, 8 h"; repeated hours carry their offset. */
export function spanWords(start, end) {
  const text = range(new Date(start), new Date(end));
  return `${text}${ambiguity(start, end)}, ${duration((end - start) / 1000)}`;
}

// Near a change of the zone's offset, a time of day alone may mean two moments.
function ambiguity(start, end) {
  const margin = 3 * 3_600_000;
  if (offset(new Date(start - margin)) === offset(new Date(end + margin))) return "";
  const [first, last] = [offsetName(new Date(start)), offsetName(new Date(end))];
  return first === last ? ` (${first})` : ` (${first} to ${last})`;
}

/** A moment in the chosen zone: "Tue 14:00", with the date where that is not enough. */
export function momentWords(time) {
  const date = new Date(time);
  return Math.abs(date - serverNow()) < 6 * 86_400_000 ? shortMoment(date) : moment(date);
}

/** A row as its heading says it: "r1-n06, getting ready". */
export function rowWords({ name, state }) {
  const words = stateWords(state);
  return words ? `${plain(name)}, ${words}` : plain(name);
}
