// The table of the resources that a lease holds.

import { button, h, icon, link, name } from "../dom.js";
import { problemNote } from "../forms.js";
import { moment, shortMoment } from "../time.js";
import { contents, isOver, typeTitle } from "./words.js";

const STATES = {
  ready: ["Ready", "check"],
  preparing: ["Getting ready", "half"],
  off: ["Off, bookable", "power"],
  set_aside: ["Set aside", "warning"],
  failing: ["Failing", "warning"],
};
const SHOWN = 12; // rows before the rest is folded
const HIDDEN = ["id", "cpu_info", "hypervisor_type", "hypervisor_version", "service_name", "hypervisor_hostname",
  "name", "address"];

/** The state of a resource in words: `[text, icon]`. */
export function resourceState(state) {
  return STATES[state] || [state || "Unknown", "ring"];
}

/** The few properties that tell resources apart: "8 vCPUs, 64 GiB, rack r1". Pure. */
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

/** The part of the page with one table for each resource type. */
export function resourceTable(lease, { resources, readiness }, me) {
  if (!resources) return [h("h2", {}, "Resources"), h("p", { class: "quiet" }, "Loading.")];
  if (resources.error) return [h("h2", {}, "Resources"), problemNote(resources.error)];
  const list = resources.resources;
  if (!list.length) return [h("h2", {}, "Resources"), h("p", { class: "quiet" }, emptyText(lease))];
  const types = [...new Set(list.map((item) => item.resource_type))];
  const isPast = isOver(lease);
  return [types.map((type) => oneType(type, list.filter((item) => item.resource_type === type), me, isPast)),
    resources.next ? h("p", { class: "quiet" }, `The first ${list.length} are shown.`) : null, ready(readiness)];
}

function emptyText(lease) {
  if (["TERMINATED", "DELETING"].includes(lease.status)) return "The lease has given its resources back.";
  return `climate assigns ${contents(lease.reservations)} at the start.`;
}

function oneType(type, list, me, isPast) {
  const isHost = type === "physical:host";
  const isTimed = list.some((item) => item.ready_at);
  const columns = [isHost ? "Host" : "Name", isPast ? null : "State", "What it has", ...(isTimed ? ["Ready at"] : [])];
  const head = h("thead", {}, h("tr", {}, columns.filter(Boolean).map((text) =>
    h("th", { scope: "col", class: text === "What it has" ? "optional" : null }, text))));
  const body = h("tbody", {}, list.map((item, index) => row(item, me, { isHidden: index >= SHOWN, isTimed, isPast })));
  const more = list.length > SHOWN ? button(`Show all ${list.length}`, (event) => {
    for (const line of body.children) line.hidden = false;
    event.target.remove();
  }, { kind: "link" }) : null;
  return h("div", { class: "resources" }, h("h2", {}, isPast ? `${typeTitle(type)} that it had` : typeTitle(type)),
    h("div", { class: "table" },
      h("table", {}, h("caption", { class: "visually-hidden" }, typeTitle(type)), head, body)), more);
}

function row(item, me, { isHidden, isTimed, isPast }) {
  const [text, symbol] = resourceState(item.state);
  const hasShare = Object.keys(item.amounts || {}).length > 0;
  const at = item.ready_at ? new Date(item.ready_at) : null;
  const title = me.allowed["resources:get"]
    ? link(`/console/resources/${encodeURIComponent(item.id)}`, name(item.name), { "data-focus": `r-${item.id}` })
    : name(item.name);
  return h("tr", { hidden: isHidden, "data-resource": item.id },
    h("th", { scope: "row" }, title),
    isPast ? null : h("td", {}, h("span", { class: "nowrap" }, icon(symbol), " ", text),
      item.handed_over === false ? h("small", { class: "quiet line" }, "not handed over yet") : null),
    h("td", { class: "optional" }, name(propertyWords(item.properties)),
      hasShare ? h("small", { class: "quiet line" }, `Of it ${shareWords(item.amounts)}`) : null),
    isTimed ? h("td", {}, at ? h("time", { datetime: item.ready_at, title: moment(at) }, shortMoment(at)) : null)
      : null);
}

const CLASSES = { VCPU: "vCPUs", PCPU: "dedicated CPUs", MEMORY_MB: "MB memory", DISK_GB: "GB", VOLUMES: "volumes",
  GIGABYTES: "GB" };

const SINGLE = { VCPU: "vCPU", PCPU: "dedicated CPU", VOLUMES: "volume" };

/** The part of a shared resource that the lease has: "4 vCPUs, 2048 MB memory". Pure. */
export function shareWords(parts) {
  return Object.entries(parts).map(([key, value]) =>
    `${value} ${(value === 1 && SINGLE[key]) || CLASSES[key] || key}`).join(", ");
}

function ready(readiness) {
  if (!readiness?.hosts || readiness.state === "ready") return null;
  const reasons = readiness.reasons?.length ? ` ${readiness.reasons.join("; ")}` : "";
  return h("p", { class: "quiet" }, `${readiness.ready} of ${readiness.hosts} hosts are ready.${reasons}`);
}
