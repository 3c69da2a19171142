// What operators watch and do with resources: preparations, power; register, set aside, remove.

import { api, get, keepFresh, post, query } from "../api.js";
import {
  announce, button, confirm, dialog, field, form, h, icon, loading, name, plain, problemNote, replace,
} from "../dom.js";
import {
  ago, count, leaseLink, PagedTable, plainTable, plural, rememberParams, resourceLink, when,
} from "../tables/table.js";
import { duration, iso, serverNow } from "../time.js";

const DAY = 86400_000;

function claim({ owner, claimed_until: until, attempt }) {
  const again = attempt > 1 ? h("div", { class: "small quiet" }, `attempt ${attempt}`) : null;
  if (!owner) return [h("span", { class: "quiet" }, "nobody"), again];
  const expired = until && new Date(until) < serverNow();
  return [name(owner), until ? h("div", { class: "small quiet" }, expired ? `claim expired ${ago(until)}`
    : `claim ends ${ago(until)}`) : null, again];
}

function stateFilter(states, params, open, changed) {
  const select = h("select", {}, h("option", { value: "" }, "All that are not over"),
    Object.entries(states).map(([value, [, words]]) =>
      h("option", { value, selected: params.get("state") === value }, words)));
  select.addEventListener("change", () => {
    rememberParams({ state: select.value });
    changed();
  });
  return { element: h("div", { class: "filters" }, field("State", select)),
    states: () => (select.value ? [select.value] : open) };
}

class PeriodCard {
  constructor({ id, title, hint, load, draw, nothing }) {
    this.fetch = load;
    this.draw = draw;
    this.nothing = nothing;
    this.content = h("div");
    this.days = h("select", { id: `${id}-days` },
      [7, 30, 90, 365].map((days) => h("option", { value: days, selected: days === 30 }, days === 365 ? "The last year"
        : `The last ${days} days`)));
    this.days.addEventListener("change", () => this.load());
    this.element = h("section", { class: "card", "aria-labelledby": id },
      h("div", { class: "title" }, h("h2", { id, class: "grow" }, title)),
      h("p", { class: "hint" }, hint), h("div", { class: "filters" }, field("Period", this.days)), this.content);
  }

  async load() {
    const until = serverNow();
    const span = { since: iso(new Date(until - Number(this.days.value) * DAY)), until: iso(until) };
    await loading(this.content, async () => {
      const items = await this.fetch(span);
      return items.length ? this.draw(items) : h("p", { class: "empty" }, this.nothing);
    });
  }
}

function emptyCard(element, title, text) {
  replace(element, h("div", { class: "card empty" }, h("p", { class: "strong" }, title), h("p", {}, text)));
}

// Getting ready

const STATES = { wanted: ["ring", "Waits for a provisioner"], accepted: ["half", "Under way"],
  ready: ["check", "Ready"], failed: ["refused", "Failed"], over: ["dot", "Over"] };

export async function showPreparations(element, { me, params }) {
  if (me.features && me.features.provisioning === false) {
    emptyCard(element, "The service does not get hosts ready.",
      "Set [provisioning] enabled to have hosts prepared before their leases.");
    return () => {};
  }
  const filter = stateFilter(STATES, params, ["wanted", "accepted", "failed", "ready"],
    () => table.load({ first: true }));
  const table = new PagedTable({
    caption: "Preparations", path: "/v2/preparations", list: "preparations", sort: "needed", fresh: true,
    filter: () => ({ state: filter.states() }), columns: columns(),
    empty: () => "No host has to be got ready.",
  });
  const shares = new PeriodCard({ id: "shares", title: "Leases that were ready in time",
    hint: "Per hardware class. Leases that were made at too short notice do not count.",
    load: async (span) => (await get(`/v2/readiness${query(span)}`)).readiness, draw: sharesTable,
    nothing: "No lease with prepared hosts has started in this period." });
  replace(element, h("section", { class: "card", "aria-labelledby": "preparations" },
    h("h2", { id: "preparations" }, "Preparations"), filter.element, table.element),
    may(me, "readiness:get") ? shares.element : null);
  table.load();
  if (may(me, "readiness:get")) shares.load();
  const stop = keepFresh(() => table.refresh(), 5);
  return () => {
    stop();
    table.stop();
  };
}

function columns() {
  return [
    { label: "Host", header: true, cell: (task) => resourceLink(task.resource_id, task.node) },
    { label: "State", cell: (task) => h("span", { class: "state" }, icon(STATES[task.state][0]),
      STATES[task.state][1]) },
    { label: "Lease", cell: (task) => leaseLink(task.lease_id, task.lease_id) },
    { label: "Needed", sort: "needed", cell: (task) => when(task.needed_at) },
    { label: "Lead time", class: "number nowrap", cell: (task) => duration(task.lead) },
    { label: "Claim", cell: claim },
    { label: "Result", cell: result },
  ];
}

function result({ ready_at: ready, early, reason }) {
  if (reason) return h("span", { class: "reason" }, name(reason));
  if (!ready) return h("span", { class: "quiet" }, "none yet");
  return h("span", {}, when(ready), " ", h("small", { class: "quiet" }, early >= 0 ? `${duration(early)} early`
    : `${duration(-early)} late`));
}

function sharesTable(items) {
  return plainTable({
    caption: "Leases that were ready in time", items, key: (item) => `${item.hardware}-${item.since}`,
    columns: [
      { label: "Class", header: true, cell: (item) => name(item.hardware) },
      { label: "Ready in time", cell: ({ ready_share: share, ready_leases: ready, leases }) =>
        shareBar(share, `${count(ready)} of ${plural(leases, "lease")}`) },
      { label: "Too short notice", class: "number", cell: (item) => count(item.short_notice) },
      { label: "Hosts ready", class: "number", cell: (item) => `${count(item.ready_hosts)} of ${count(item.hosts)}` },
      { label: "Ready before the start by", class: "number nowrap",
        cell: ({ mean_early: early }) => (early === null ? "" : early >= 0 ? duration(early)
          : `${duration(-early)} late`) },
    ],
  });
}

function shareBar(share, words) {
  const fill = h("span");
  fill.style.width = `${100 * share}%`;
  return h("div", { class: "share" }, h("span", {}, h("b", {}, `${count(100 * share)} %`), " ",
    h("small", { class: "quiet" }, words)), h("div", { class: "meter", "aria-hidden": "true" }, fill));
}

// Without power

const POWER_STATES = {
  wanted: ["ring", "Waits for a provisioner"], accepted: ["half", "Being switched off"], off: ["power", "Off"],
  waking: ["half", "Being switched on"], kept: ["warning", "Left on"], over: ["dot", "Over"],
};

export async function showPower(element, { me, params }) {
  if (me.features && me.features.provisioning === false) {
    emptyCard(element, "The service does not switch hosts off.",
      "Set [provisioning] enabled and power_off to save energy.");
    return () => {};
  }
  const filter = stateFilter(POWER_STATES, params, ["wanted", "accepted", "off", "waking", "kept"],
    () => table.load({ first: true }));
  const table = new PagedTable({
    caption: "Hosts without power", path: "/v2/shutdowns", list: "shutdowns", sort: "-wanted", fresh: true,
    filter: () => ({ state: filter.states() }), columns: powerColumns(),
    empty: () => "No host is off, or on its way there.",
  });
  const energy = new PeriodCard({ id: "energy", title: "What was saved",
    hint: "Hours in which hosts had no power, per hardware class.",
    load: async (span) => (await get(`/v2/readiness/energy${query(span)}`)).saved, draw: energyTable,
    nothing: "No host was off in this period." });
  replace(element, h("section", { class: "card", "aria-labelledby": "shutdowns" },
    h("h2", { id: "shutdowns" }, "Hosts without power"), filter.element, table.element),
    may(me, "readiness:get") ? energy.element : null);
  table.load();
  if (may(me, "readiness:get")) energy.load();
  const stop = keepFresh(() => table.refresh(), 5);
  return () => {
    stop();
    table.stop();
  };
}

function powerColumns() {
  return [
    { label: "Host", header: true, cell: (task) => resourceLink(task.resource_id, task.node) },
    { label: "State", cell: (task) => h("span", { class: "state" }, icon(POWER_STATES[task.state][0]),
      POWER_STATES[task.state][1]) },
    { label: "Class", cell: (task) => name(task.hardware) },
    { label: "Wanted", sort: "wanted", cell: (task) => when(task.wanted_at) },
    { label: "Off since", cell: (task) => when(task.off_at, "not yet") },
    { label: "Claim", cell: claim },
    { label: "Reason", cell: ({ reason }) => (reason ? h("span", { class: "reason" }, name(reason)) : "") },
  ];
}

function energyTable(items) {
  return plainTable({
    caption: "What was saved", items, key: (item) => `${item.hardware}-${item.since}`,
    columns: [
      { label: "Class", header: true, cell: (item) => name(item.hardware) },
      { label: "Host-hours without power", class: "number", cell: (item) => count(item.host_hours) },
      { label: "Shutdowns", class: "number", cell: (item) => count(item.shutdowns) },
    ],
  });
}

// What operators do with resources

const PLACEHOLDERS = {
  "physical:host": ["Name of the host", "The name of the compute host in the cloud, such as compute-17."],
  "virtual:floatingip": ["Network and address", "The id of the network, a slash, and the address."],
  "virtual:network": ["Segment", "vlan:<physical network>:<number>, or vxlan::<number>."],
  "virtual:volume": ["Volume type", "The name or the id of the volume type."],
};

export function may(me, rule) {
  return me.allowed[rule] === true;
}

/** Say that the role does not allow a page. */
export function refuse(element, heading, text) {
  replace(element, h("div", { class: "page" }, h("h1", {}, heading), h("p", {}, text)));
  return () => {};
}

export function registerDialog({ types, chosen, titleOf }, done) {
  const type = h("select", { name: "resource_type" },
    types.map((item) => h("option", { value: item, selected: item === chosen }, titleOf(item))));
  const input = h("input", { name: "name", required: true, maxlength: 255, autocomplete: "off", spellcheck: "false" });
  const label = field("Name", input, "x");
  const explain = () => {
    const [words, hint] = PLACEHOLDERS[type.value] || ["Name", "The name of the resource in the cloud."];
    label.querySelector("label").textContent = words;
    label.querySelector(".hint").textContent = hint;
  };
  type.addEventListener("change", explain);
  explain();
  const text = h("textarea", { name: "properties", spellcheck: "false", placeholder: "rack = r1\ngpus = 4" });
  const content = form([field("Type", type), label,
    field("Properties", text, "Optional. One property a line: name = value. Property expressions can use them.")],
  "Register", async (values) => {
    const body = { resource_type: values.resource_type, name: values.name.trim(),
      properties: readProperties(values.properties) };
    const resource = await post("/v2/resources", body);
    box.close();
    announce(`${plain(resource.name)} is registered.`);
    done(resource);
  }, { busy: "Registering" });
  const box = dialog({ title: "Register a resource", content });
}

function readProperties(text) {
  const properties = {};
  for (const line of text.split("\n").map((item) => item.trim()).filter(Boolean)) {
    const at = line.indexOf("=");
    if (at < 1) throw fieldProblem("properties", `"${line}" is not a property. Write name = value.`);
    const value = line.slice(at + 1).trim();
    properties[line.slice(0, at).trim()] = /^-?\d{1,15}(\.\d+)?$/.test(value) ? Number(value) : value;
  }
  return properties;
}

function fieldProblem(key, detail) {
  return Object.assign(new Error(detail), { detail, body: { errors: [{ pointer: `#/${key}`, detail }] } });
}

export function setAsideDialog(resources, done) {
  const reason = h("textarea", { name: "reason", required: true, maxlength: 2000, class: "words" });
  const effect = "Running leases keep it. climate replaces it in later leases, if another host is free.";
  const content = form([h("p", {}, `climate books a host that is set aside for no new lease. ${effect}`),
    named(resources),
    field("Reason", reason, "Operators see it beside the host.")], "Set aside", async (values) => {
    await each(resources, (item) => api("PATCH", `/v2/resources/${encodeURIComponent(item.id)}/readiness`,
      { body: { set_aside: values.reason.trim() } }), done);
    box.close();
    announce(`${subject(resources)} set aside.`);
  }, { busy: "Setting aside" });
  const box = dialog({ title: `Set ${subject(resources)} aside`, content });
}

export async function returnToService(resources, done) {
  const text = h("span", {}, "climate books them again for new leases if they work.");
  const yes = await confirm({ title: `Return ${subject(resources)} to service`, text, action: "Return to service" });
  if (!yes) return;
  await attempt(() => each(resources, (item) => api("PATCH", `/v2/resources/${encodeURIComponent(item.id)}/readiness`,
    { body: { set_aside: null } }), done),
    `${subject(resources)} returned to service.`);
}

export async function removeResources(resources, done) {
  const text = "climate forgets the resource and its properties. The cloud keeps it. "
    + "climate refuses to remove a resource that a lease uses or will use.";
  const yes = await confirm({ title: `Remove ${subject(resources)}`, text, action: "Remove", danger: true });
  if (!yes) return;
  await attempt(() => each(resources, (item) => api("DELETE", `/v2/resources/${encodeURIComponent(item.id)}`), done),
    `${subject(resources)} removed.`);
}

async function attempt(work, success) {
  try {
    await work();
    announce(success);
  } catch (error) {
    dialog({ title: "Not everything has changed", content: problemNote(error, error.details || []) });
  }
}

async function each(items, send, done) {
  const refused = [];
  for (const item of items) {
    try {
      await send(item);
    } catch (error) {
      if (items.length === 1) throw error;
      refused.push(`${plain(item.name)}: ${error.detail || error}`);
      if (error.code === "offline") break;
    }
  }
  if (refused.length < items.length) done();
  if (!refused.length) return;
  const detail = `The service refused ${refused.length} of ${items.length}.`;
  throw Object.assign(new Error(detail), { detail, details: ["", ...refused].slice(refused.length > 1 ? 1 : 0) });
}

function subject(resources) {
  return resources.length === 1 ? plain(resources[0].name) : plural(resources.length, "resource");
}

function named(resources) {
  if (resources.length === 1) return null;
  const shown = resources.slice(0, 10);
  return h("p", { class: "small" }, shown.map((item, at) => [at ? ", " : "", name(item.name)]), resources.length > 10
    ? ` and ${resources.length - 10} more` : "", ".");
}
