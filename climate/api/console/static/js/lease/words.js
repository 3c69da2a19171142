// Leases in words: states, types, amounts, events, badges, limits, history, and how to use what they hold.

import { h, icon, plain } from "../dom.js";
import { day, duration, moment, utc } from "../time.js";

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

/** The words for a resource type: `{title, one, many}`. */
export function typeWords(type) {
  const last = plain(type.split(":").pop());
  const [one, many] = TYPES[type] ?? [last, `${last}s`];
  return { title: TITLES[type] ?? sentence(many), one, many };
}

export function typeTitle(type) {
  return TYPES[type] ? typeWords(type).title : type;
}

export function noun(type, number = 2) {
  const { one, many } = typeWords(type);
  return Number(number) === 1 ? one : many;
}

/** "2 hosts", "1 volume". */
export function counted(number, type) {
  return `${grouped(number)} ${noun(type, number)}`;
}

/** A number as people write it: "3,410", with at most `digits` decimals. */
export function grouped(value, digits = 1) {
  return Number(value).toLocaleString("en-US", { maximumFractionDigits: digits });
}

/** The amounts that a reservation asks for: `{least, most}`; a stack or network is one. */
export function amounts({ params }) {
  const most = params.max ?? params.amount ?? 1;
  return { least: params.min ?? most, most };
}

/** "2 hosts", "1 to 3 hosts and 1 volume". */
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
function joined(parts) {
  if (parts.length < 2) return parts.join("");
  return `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`;
}

const STATES = {
  CREATING: ["Being decided", "", "clock"],
  WAITING: ["Waiting", "care", "clock"],
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
  if (lease.status === "WAITING") return `${text}, ${placeWords(lease)}`;
  if (start > now) return `${text}, starts in ${duration((start - now) / 1000)}`;
  return text;
}

/** "position 3 in the wait list". */
export function placeWords({ waiting }) {
  return waiting ? `position ${waiting.position} in the wait list` : "waiting";
}

function sentence(text) {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

const EVENTS = {
  start_lease: ["Start", "Started"],
  end_lease: ["End", "Ended"],
  update_lease: ["Update", "Updated"],
  before_end_lease: ["Reminder before the end", "Reminded before the end"],
  before_end_reminder: ["Reminder before the end", "Reminded before the end"],
  expire_wait: ["Leaves the wait list", "Left the wait list"],
  before_start_lease: ["Reminder before the start", "Reminded before the start"],
};

export function eventWords({ type, status }) {
  const [later, done] = EVENTS[type] || [`Reminder ${type}`, `Reminded of ${type}`];
  if (status === "ERROR") return `${later}: failed`;
  return status === "DONE" ? done : later;
}

export function nextEvent(lease) {
  const open = lease.events.filter(({ status }) => status === "UNDONE" || status === "IN_PROGRESS");
  return open.sort((one, other) => Date.parse(one.at) - Date.parse(other.at))[0] || null;
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

// Small pieces that the pages of leases share

/** A badge with an icon: never by colour alone. */
function badge({ text, tone, symbol }) {
  return h("span", { class: `badge ${tone}`.trim() }, icon(symbol), text);
}

/** The badges of a lease: status, and "Degraded" if resources fail. */
export function badges(lease, now) {
  return [badge(state(lease, now)),
    lease.degraded ? badge({ text: "Degraded", tone: "care", symbol: "warning" }) : null];
}

/** A moment in the chosen zone with UTC below it. */
export function stackedTime(date, { short = false } = {}) {
  const value = new Date(date);
  return h("time", { datetime: value.toISOString(), class: "when" },
    short ? day(value) : moment(value), h("small", { class: "quiet" }, utc(value)));
}

export function note(tone, symbol, ...content) {
  return h("div", { class: `note ${tone}`.trim() }, icon(symbol), h("div", {}, content));
}

export function missing(title, text, ...links) {
  return h("div", { class: "page" }, h("h1", {}, title), h("p", {}, text), h("p", {}, links));
}

/** Text in a box with a button that copies it. */
export function copyable(text, label) {
  const status = h("span", { role: "status", class: "small quiet" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      status.textContent = "Copied";
    } catch {
      // Without TLS browsers give no clipboard: select the text, so that the user can copy it.
      getSelection().selectAllChildren(code);
      status.textContent = "Selected: press Ctrl+C";
    }
  };
  const code = h("code", {}, text);
  return h("div", { class: "copyable" }, code,
    h("button", { type: "button", class: "button square quiet", onclick: copy, "aria-label": `Copy ${label}` },
      icon("copy")),
    status);
}

// What happened to a lease, from its notifications and its events.

const TEXTS = {
  "lease.create": ["Created", "plus"],
  "lease.delete": ["Deleted", "close"],
  "lease.waiting": ["Joined the wait list", "clock"],
  "lease.promised": ["Booked, with a promised start", "check"],
  "lease.moved_forward": ["Moved to an earlier time", "check"],
  "lease.promise_withdrawn": ["Waits again: its booking was taken", "warning"],
  "lease.not_started": ["Ended without having started", "warning"],
  "lease.start_delayed": ["The start waits for hosts that are not ready", "warning"],
  "lease.catch_up": ["Overdue events caught up", "clock"],
  "lease.trust_lost": ["climate cannot act as the owner", "warning"],
  "lease.not_reserved": ["Stack not reserved", "warning"],
  "reservation.started": ["Reservation started", "check"],
  "reservation.stopped": ["Reservation stopped", "check"],
  "lease.trust_restored": ["climate can act as the owner again", "check"],
  "lease.event.start_lease": ["Started", "check"],
  "lease.event.end_lease": ["Ended", "dot"],
  "lease.event.before_end_lease.stop": ["Stopped using the resources before the end", "bell"],
};

/** Entries of the history, the latest first. */
export function history(notifications, lease, moment) {
  const entries = notifications.map((notification, index) =>
    entry(notification, notifications[index - 1]?.payload, moment));
  if (!entries.length) entries.push(...withoutNotifications(lease));
  if (lease.ready_at) entries.push(
    { at: new Date(lease.ready_at), text: "Ready for its start", detail: early(lease), symbol: "half" });
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

function early(lease) {
  const seconds = Math.round((Date.parse(lease.start) - Date.parse(lease.ready_at)) / 1000);
  const amount = Math.abs(seconds);
  const text = amount < 60 ? `${amount} s` : `${Math.floor(amount / 60)} min ${amount % 60} s`;
  if (!seconds) return "";
  return seconds > 0 ? `${text} early` : `${text} late`;
}

/** The limits on what leases book, each with its unit. */
export const LIMITS = { hosts: "hosts", host_hours: "host hours", vcpus: "vCPUs", gigabytes: "GiB",
  floatingips: "floating IPs", networks: "networks", leases: "leases" };

/** A limit as a title, such as "Hosts at once". */
export function limitTitle(key, period) {
  const when = key === "host_hours" ? "in " + duration(period) : "at once";
  return `${label(LIMITS[key])} ${when}`;
}

// How to use what a lease holds

export function usage(reservation) {
  const make = USAGES[reservation.resource_type] || otherDetails;
  const { items, hint = "" } = make(reservation);
  return { title: typeTitle(reservation.resource_type), items, hint };
}

const USAGES = {
  "physical:host": ({ id }) => ({
    hint: "Boot servers on the hosts with this scheduler hint.",
    items: [{ label: "scheduler hint", text: `--hint reservation=${id}` }],
  }),
  "virtual:instance": instances,
  "flavor:instance": instances,
  "virtual:floatingip": ({ details, params }) => {
    const addresses = Object.entries(details.floatingips || {});
    return {
      hint: addresses.length ? "The floating IPs belong to your project."
        : "They become floating IPs of your project at the start.",
      items: addresses.length
        ? addresses.map(([address]) => ({ label: `address ${address}`, text: address }))
        : [{ label: "network", text: params.network_id }],
    };
  },
  "virtual:network": ({ details, params }) => {
    const networks = Object.entries(details.networks || {});
    return {
      hint: networks.length ? "The network belongs to your project." : "climate creates the network at the start.",
      items: networks.length
        ? networks.map(([segment, id]) => ({ label: `network on ${segment}`, text: id }))
        : [{ label: "network name", text: params.network_name }],
    };
  },
  "virtual:volume": ({ details, params }) => {
    const volumes = listed(details.volumes);
    const type = details.reserved_type || "";
    return {
      hint: volumes.length ? "The volumes belong to your project." : "Create volumes of this type.",
      items: [
        ...(type ? [{ label: "volume type",
          text: `openstack volume create --type ${type} --size ${params.size} NAME` }] : []),
        ...volumes.map((id) => ({ label: "volume", text: id })),
      ],
    };
  },
  "virtual:stack": ({ details }) => ({
    hint: "The stack belongs to your project.",
    items: details.stack_id ? [{ label: "stack", text: `openstack stack show ${details.stack_id}` }] : [],
  }),
};

function instances({ id, details }) {
  const group = details.server_group_id ? ` --hint group=${details.server_group_id}` : "";
  return {
    hint: "Boot servers with this flavor. It exists as long as the lease runs.",
    items: [
      { label: "flavor", text: `--flavor ${details.flavor_id || id}${group}` },
      ...listed(details.servers).map((server) => ({ label: "server", text: server })),
    ],
  };
}

function otherDetails({ details }) {
  const items = Object.entries(details).filter(([, value]) => value !== null && value !== "");
  return { items: items.map(([label, value]) =>
    ({ label, text: typeof value === "string" ? value : JSON.stringify(value) })) };
}

function listed(value) {
  const items = Array.isArray(value) ? value : Object.values(value || {});
  return items.map((item) => (typeof item === "string" ? item : item.id || JSON.stringify(item)));
}

// Resources of a lease in words

const HIDDEN = ["id", "cpu_info", "hypervisor_type", "hypervisor_version", "service_name", "hypervisor_hostname",
  "name", "address"];

/** The few properties that tell resources apart: "8 vCPUs, 64 GiB, rack r1". */
export function propertyWords(properties) {
  const { vcpus, memory_mb: memory, local_gb: disk, ...rest } = properties || {};
  const parts = [];
  if (vcpus) parts.push(`${vcpus} vCPUs`);
  if (memory) parts.push(`${Math.round((memory / 1024) * 10) / 10} GiB`);
  if (disk) parts.push(`${disk} GB disk`);
  for (const [key, value] of Object.entries(rest)) {
    if (HIDDEN.includes(key) || key.startsWith("trait:") || key.startsWith("resources:")
      || String(value).length > 40) continue;
    parts.push(`${key} ${value}`);
  }
  return parts.slice(0, 5).join(", ");
}

const CLASSES = { VCPU: "vCPUs", PCPU: "dedicated CPUs", MEMORY_MB: "MB memory", DISK_GB: "GB", VOLUMES: "volumes",
  GIGABYTES: "GB" };

const SINGLE = { VCPU: "vCPU", PCPU: "dedicated CPU", VOLUMES: "volume" };

export function shareWords(parts) {
  return Object.entries(parts).map(([key, value]) =>
    `${value} ${(value === 1 && SINGLE[key]) || CLASSES[key] || key}`).join(", ");
}
