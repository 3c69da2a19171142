// What happened to a lease, from its notifications and its events. Pure functions.

import { counted, eventWords, joined } from "./words.js";

const TEXTS = {
  "lease.create": ["Created", "plus"],
  "lease.delete": ["Deleted", "close"],
  "lease.not_started": ["Ended without having started", "warning"],
  "lease.start_delayed": ["The start waits for hosts that are not ready", "warning"],
  "lease.catch_up": ["Overdue events caught up", "clock"],
  "lease.trust_lost": ["climate cannot act as the owner of the lease", "warning"],
  "lease.trust_restored": ["climate can act as the owner of the lease again", "check"],
  "lease.event.start_lease": ["Started", "check"],
  "lease.event.end_lease": ["Ended", "dot"],
  "lease.event.before_end_lease.stop": ["Stopped using the resources before the end", "bell"],
};

/**
 * Entries of the history, the latest first.
 * @param {object[]} notifications of this lease, the earliest first
 * @param {object} lease
 * @param {function(Date): string} moment writes a time
 * @returns {{at: Date, text: string, detail: string, symbol: string}[]}
 */
export function history(notifications, lease, moment) {
  const entries = notifications.map((notification, index) =>
    entry(notification, notifications[index - 1]?.payload, moment));
  if (!entries.length) entries.push(...withoutNotifications(lease));
  if (lease.ready_at) entries.push(
    { at: new Date(lease.ready_at), text: "All hosts ready", detail: early(lease), symbol: "half" });
  return entries.sort((one, other) => other.at - one.at);
}

function entry({ event_type: type, created_at: at, payload }, before, moment) {
  const known = TEXTS[type];
  if (known) return { at: new Date(at), text: known[0], detail: hosts(payload), symbol: known[1] };
  if (type.startsWith("lease.event.")) {
    const words = eventWords({ type: type.slice("lease.event.".length), status: "DONE" });
    return { at: new Date(at), text: words, detail: "", symbol: "bell" };
  }
  return { at: new Date(at), ...changed(type, payload, before, moment) };
}

function changed(type, payload, before, moment) {
  const detail = hosts(payload);
  if (payload.degraded && !before?.degraded) return { text: "Resources of the lease fail", detail, symbol: "warning" };
  if (before?.degraded && !payload.degraded) return { text: "All resources work again", detail, symbol: "check" };
  const text = type === "lease.update" ? "Changed" : type;
  return { text, detail: before ? changes(payload, before, moment) : "", symbol: "ring" };
}

function changes(payload, before, moment) {
  const date = (text) => moment(new Date(`${text.replace(" ", "T").replace(/Z?$/, "")}Z`));
  const parts = [];
  if (payload.name !== before.name) parts.push(`name: ${payload.name}`);
  if (payload.start_date !== before.start_date) parts.push(`start: ${date(payload.start_date)}`);
  if (payload.end_date !== before.end_date) parts.push(`end: ${date(payload.end_date)}`);
  if (JSON.stringify(payload.reservations) !== JSON.stringify(before.reservations)) parts.push("reservations");
  return joined(parts);
}

function hosts(payload) {
  const names = (payload.hosts || []).map((host) => host.name);
  if (names.length > 4) return counted(names.length, "physical:host");
  return joined(names);
}

function withoutNotifications(lease) {
  const entries = [{ at: new Date(lease.created_at), text: "Created", detail: "", symbol: "plus" }];
  for (const event of lease.events) {
    if (event.status !== "DONE" && event.status !== "ERROR") continue;
    const symbol = event.status === "DONE" ? "check" : "warning";
    entries.push({ at: new Date(event.at), text: eventWords(event), detail: "", symbol });
  }
  return entries;
}

/** "8 min 40 s early" of the hosts of a lease; empty without a start. */
function early(lease) {
  const seconds = Math.round((Date.parse(lease.start) - Date.parse(lease.ready_at)) / 1000);
  const amount = Math.abs(seconds);
  const text = amount < 60 ? `${amount} s` : `${Math.floor(amount / 60)} min ${amount % 60} s`;
  if (!seconds) return "";
  return seconds > 0 ? `${text} early` : `${text} late`;
}
