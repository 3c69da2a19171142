// Leases in words: states, types, amounts, events. Pure functions.

import { duration } from "../time.js";

const TYPES = {
  "physical:host": ["host", "hosts"],
  "virtual:instance": ["instance", "instances"],
  "flavor:instance": ["instance", "instances"],
  "virtual:network": ["network", "networks"],
  "virtual:floatingip": ["floating IP", "floating IPs"],
  "virtual:volume": ["volume", "volumes"],
  "virtual:stack": ["stack", "stacks"],
};

const TITLES = { "flavor:instance": "Instances of a flavor", "virtual:floatingip": "Floating IPs" };

/** "2 hosts", "1 volume", "3 of shop:bike". */
export function counted(number, type) {
  const words = TYPES[type];
  if (!words) return `${number} of ${type}`;
  return `${number} ${words[number === 1 || number === "1" ? 0 : 1]}`;
}

/** The unit of a resource type: "host", or the type itself. */
export function unitOf(type) {
  return TYPES[type]?.[0] || type;
}

/** The heading of a resource type: "Hosts". */
export function typeTitle(type) {
  if (TITLES[type]) return TITLES[type];
  const words = TYPES[type]?.[1];
  return words ? words[0].toUpperCase() + words.slice(1) : type;
}

/** The amounts that a reservation asks for: `{least, most}`; a stack or network is one. */
export function amounts({ params }) {
  const most = params.max ?? params.amount ?? 1;
  return { least: params.min ?? most, most };
}

/** "2 hosts", "1 to 3 hosts and 1 volume"; "nothing" without reservations. */
export function contents(reservations) {
  const present = reservations.filter(({ status }) => status !== "deleted");
  // All reservations of a lease that is over are deleted: then it says what it had.
  const parts = (present.length ? present : reservations).map((reservation) => {
    const { least, most } = amounts(reservation);
    const text = counted(most, reservation.resource_type);
    return least === most ? text : `${least} to ${text}`;
  });
  return joined(parts) || "nothing";
}

/** "a", "a and b", "a, b and c". */
export function joined(parts) {
  if (parts.length < 2) return parts.join("");
  return `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`;
}

const STATES = {
  CREATING: ["Being decided", "", "clock"],
  PENDING: ["Scheduled", "later", "clock"],
  STARTING: ["Starting", "later", "half"],
  ACTIVE: ["Running", "good", "check"],
  UPDATING: ["Changing", "later", "half"],
  TERMINATING: ["Ending", "", "half"],
  TERMINATED: ["Ended", "", "dot"],
  DELETING: ["Being deleted", "", "half"],
  ERROR: ["Failed", "bad", "refused"],
};

/** Whether the start has passed and the lease waits for its hosts. */
export function isDelayed(lease, now) {
  return lease.status === "PENDING" && new Date(lease.start) <= now && lease.start_when === "ready";
}

/** The status of a lease as `{text, tone, symbol}` of a badge. */
export function state(lease, now = new Date()) {
  if (isDelayed(lease, now)) return { text: "Waits for hosts", tone: "care", symbol: "half" };
  const [text, tone, symbol] = STATES[lease.status] || [lease.status, "", "dot"];
  return { text, tone, symbol };
}

/** Whether a lease is over, or about to be removed. */
export function isOver({ status }) {
  return ["TERMINATED", "TERMINATING", "DELETING"].includes(status);
}

/** "2 hosts for 48 h, 31 h 28 min left". */
export function summary(lease, now) {
  const [start, end] = [new Date(lease.start), new Date(lease.end)];
  const text = `${sentence(contents(lease.reservations))} for ${duration((end - start) / 1000)}`;
  if (isOver(lease) || end <= now) return text;
  if (lease.status === "ACTIVE") return `${text}, ${duration((end - now) / 1000)} left`;
  if (start > now) return `${text}, starts in ${duration((start - now) / 1000)}`;
  return text;
}

function sentence(text) {
  return text[0].toUpperCase() + text.slice(1);
}

const EVENTS = {
  start_lease: ["Start", "Started"],
  end_lease: ["End", "Ended"],
  before_end_lease: ["Reminder before the end", "Reminded before the end"],
  before_start_lease: ["Reminder before the start", "Reminded before the start"],
};

/** An event in words: what will happen, or what has happened. */
export function eventWords({ type, status }) {
  const [later, done] = EVENTS[type] || [`Reminder ${type}`, `Reminded of ${type}`];
  if (status === "ERROR") return `${later}: failed`;
  return status === "DONE" ? done : later;
}

/** The next event that is due, or null. */
export function nextEvent(lease) {
  const open = lease.events.filter(({ status }) => status === "UNDONE" || status === "IN_PROGRESS");
  return open.sort((one, other) => Date.parse(one.at) - Date.parse(other.at))[0] || null;
}

/** A property expression in words: "gpus >= 4 and vcpus >= 64". The text itself if it is none. */
export function expressionText(text) {
  const expression = parsed(text);
  return Array.isArray(expression) ? words(expression, true) : String(text ?? "");
}

/** The expression of a text in JSON; null for an empty text or one that is not JSON. */
export function parsed(text) {
  if (Array.isArray(text)) return text;
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}

function words(expression, isTop = false) {
  if (!Array.isArray(expression)) return String(expression).replace(/^\$/, "");
  const [operator, ...rest] = expression;
  const parts = rest.map((part) => words(part));
  if (operator === "not") return `not ${parts.join("")}`;
  const infix = { "==": "=", "=": "=" }[operator] || operator;
  const text = parts.join(` ${infix} `);
  const isGroup = (operator === "and" || operator === "or") && parts.length > 1;
  return isGroup && !isTop ? `(${text})` : text;
}

const ACRONYMS = { id: "id", mb: "(MB)", gb: "(GB)", vcpus: "vCPUs", cpu: "CPU", ip: "IP" };

/** The name of a parameter as a label: "memory_mb" is "Memory (MB)". */
export function label(key) {
  const parts = key.split("_").map((part) => ACRONYMS[part] || part);
  const text = parts.join(" ");
  return text.startsWith("vCPU") ? text : sentence(text);
}

/** What differs between two states of a lease: `[what, before, after]`, times as texts of the API. */
export function differences(before, after) {
  const pairs = [
    ["Name", before.name, after.name], ["Start", before.start, after.start], ["End", before.end, after.end],
    ["Status", state(before).text, state(after).text],
    ["Degraded", before.degraded ? "yes" : "no", after.degraded ? "yes" : "no"],
    ["Resources", contents(before.reservations), contents(after.reservations)],
    ["Starts", before.start_when, after.start_when],
    ["Events", eventList(before), eventList(after)],
  ];
  return pairs.filter(([, one, other]) => one !== other);
}

function eventList(lease) {
  return joined(lease.events.map(eventWords));
}
