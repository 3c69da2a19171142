// Operations: the tabs, managers and overdue events, failing resources, notifications.

import { get, keepFocus, keepFresh, query } from "../api.js";
import { button, field, h, icon, link, loading, name, plain, problemNote, replace } from "../dom.js";
import { eventWords, typeTitle } from "../lease/words.js";
import { ago, count, leaseLink, PagedTable, plainTable, plural, resourceLink, stateOf, when } from "../tables/table.js";
import { clockSeconds, day, duration } from "../time.js";
import { returnToService, may, setAsideDialog, refuse, showPower, showPreparations } from "./operators.js";
import { shortProperties } from "./resources.js";
import { subscriptionsList } from "./subscriptions.js";

const any = (...rules) => (me) => rules.some((rule) => may(me, rule));

// `[key, label, whether the policy allows it, its function]`; it returns the function that ends the tab.
const TABS = [
  ["now", "Now", any("events:get", "managers:get"), () => showNow],
  ["ready", "Getting ready", any("preparations:get"), () => showPreparations],
  ["power", "Without power", any("shutdowns:get"), () => showPower],
  ["failing", "Set aside and failing", any("readiness:get", "readiness:put"), () => showFailing],
  ["leases", "All leases", any("leases:get_all"), async () => (await import("./leases.js")).showAllLeases],
  ["notifications", "Notifications", any("notifications:get_all", "subscriptions:get_all"), () => showNotifications],
  ["utilisation", "Utilisation", any("utilisation:get"),
    async () => (await import("../tables/charts.js")).showUtilisation],
];

/** Show the tab that the address names, or the first. */
export async function mount(element, context) {
  const allowed = TABS.filter(([, , allows]) => allows(context.me));
  const tab = allowed.find(([key]) => key === context.id) || (context.id ? null : allowed[0]);
  if (!tab) {
    context.title("Operations");
    return refuse(element, "Operations", allowed.length ? "There is no such page for operators."
      : "Your role does not allow you to see the operations of the service.");
  }
  const [key, label, , load] = tab;
  context.title(`${label}, operations`);
  const content = h("div", { class: "stack-20", id: `operations-${key}` });
  replace(element, h("div", { class: "page" }, h("h1", {}, "Operations"),
    h("nav", { class: "segments", "aria-label": "Operations" }, allowed.map(([item, words]) =>
      link(`/console/operations/${item}`, words, { "aria-current": item === key ? "page" : null }))),
    h("h2", { class: "visually-hidden" }, label), content));
  const show = await load();
  return show(content, context);
}

// Now

const LATE = 60; // seconds after which overdue work is an alarm

async function showNow(element, { me }) {
  const alarms = h("div", { class: "stack", id: "alarms", role: "status" });
  const managers = h("div");
  const overdue = may(me, "events:get") ? overdueTable() : null;
  const what = "Events that should have run by now, and why they have not.";
  replace(element, alarms,
    overdue ? section("overdue", "Overdue work", what, overdue.element) : null,
    may(me, "managers:get") ? section("managers", "Managers", "Processes that start and end leases.", managers) : null);
  const state = { me, alarms, managers, overdue };
  await loading(managers, () => load(state), "the managers");
  const stop = keepFresh(() => refresh(state), 5);
  return () => {
    stop();
    if (overdue) overdue.stop();
  };
}

function section(id, title, hint, content) {
  return h("section", { class: "card", "aria-labelledby": id },
    h("h2", { id }, title), h("p", { class: "hint" }, hint), content);
}

async function load({ me, alarms, overdue }) {
  const [body] = await Promise.all([
    may(me, "managers:get") ? get("/v2/managers", { background: true }) : null,
    overdue ? overdue.load({ quiet: Boolean(overdue.loaded) }) : null,
  ]);
  drawAlarms(alarms, body, overdue && overdue.items);
  return body ? draw(body) : null;
}

async function refresh(state) {
  const content = await load(state);
  if (content) keepFocus(state.managers, () => replace(state.managers, content));
}

function drawAlarms(element, body, overdue) {
  const alarms = alarmsOf(body, overdue);
  const print = JSON.stringify(alarms);
  if (print === element.dataset.print) return;
  element.dataset.print = print;
  replace(element, alarms.length ? alarms.map(alarm) : alarm(["good", "No alarm.", calm(body, overdue)]));
}

function alarm([kind, title, text]) {
  const symbol = { bad: "refused", care: "warning", good: "check" }[kind];
  return h("div", { class: `note ${kind}`, dataset: { alarm: kind } }, icon(symbol),
    h("div", {}, h("p", {}, h("b", {}, title), " ", name(text))));
}

function calm(body, overdue) {
  return [body ? "Managers run." : "", overdue ? "No work is late." : ""].join(" ").trim();
}

function alarmsOf(body, overdue) {
  const alarms = [];
  if (body && !body.managers.some(({ alive }) => alive)) {
    alarms.push(["bad", "No manager runs.", "Leases neither start nor end until you start climate-manager."]);
  } else if (body) {
    alarms.push(...body.warnings.map((text) => ["care", "A loop of a manager has stalled.", `${text}.`]));
  }
  const late = (overdue || []).filter((event) => event.late_seconds > LATE);
  const failing = late.filter((event) => event.last_error);
  if (late.length) alarms.push(["care", `${plural(late.length, "event")} late by more than a minute.`,
    "The reasons are below."]);
  if (failing.length) alarms.push(["care", `${plural(failing.length, "event")} failed.`,
    "climate retries. The errors are below."]);
  return alarms;
}

function overdueTable() {
  return new PagedTable({
    caption: "Overdue work", path: "/v2/overdue-events", list: "events", sort: "due", limit: 50, fresh: true,
    columns: [
      { label: "Event", header: true, cell: ({ type }) => name(eventWords({ type })) },
      { label: "Lease", cell: ({ lease_id: id, lease_name: label }) => (id ? leaseLink(id, label) : "deleted") },
      { label: "Project", cell: (event) => name(event.project_id || "") },
      { label: "Due", sort: "due", cell: (event) => when(event.due_at) },
      { label: "Late by", class: "number nowrap", cell: (event) => duration(event.late_seconds) },
      { label: "Attempts", class: "number", cell: (event) => count(event.attempt) },
      { label: "Reason", cell: reason },
    ],
    empty: () => [icon("check"), " Nothing is overdue."],
  });
}

function reason({ reason: text, blocked_by: blocker, last_error: error }) {
  const words = blocker
    ? ["It waits for the end of ", leaseLink(blocker.lease_id, blocker.lease_name, "blocker"), " on ",
      name(blocker.resource), "."]
    : name(text);
  return [h("div", {}, words), error ? h("small", { class: "bad-text reason" }, name(error)) : null];
}

function draw({ managers, lateness }) {
  const columns = [
    { label: "Manager", header: true, cell: (item) => name(item.id) },
    { label: "State", class: "nowrap", cell: state },
    { label: "Heartbeat", class: "nowrap", cell: (item) => h("time", { datetime: item.beat_at }, ago(item.beat_at)) },
    { label: "Started", cell: (item) => when(item.started_at) },
    { label: "Loops", cell: loops },
  ];
  return [waiting(lateness), managers.length
    ? plainTable({ caption: "Managers of the last day", items: managers, columns })
    : h("p", { class: "empty" }, "No manager has run for a day.")];
}

function state({ alive }) {
  return h("span", { class: "state" }, icon(alive ? "check" : "refused"), alive ? "Alive" : "Silent");
}

function loops({ alive, loops: all, stalled }) {
  const names = Object.entries(stalled);
  if (!names.length) return alive ? `${plural(Object.keys(all).length, "loop")} on time` : "";
  return names.map(([loop, seconds]) => h("div", { class: "state" }, icon("warning"),
    h("span", {}, name(loop), ` stalled for ${duration(seconds)}`)));
}

function waiting({ due, oldest_due_at: oldest, unpublished, unpublished_since: since }) {
  const total = Object.values(due).reduce((sum, number) => sum + number, 0);
  const events = total ? `${plural(total, "due event")} unclaimed, the oldest due ${ago(oldest)}`
    : "no due event unclaimed";
  const messages = unpublished ? `${plural(unpublished, "notification")} unpublished, the oldest from ${ago(since)}`
    : "no notification unpublished";
  return h("p", { class: "small" }, `Waiting for managers: ${events}; ${messages}.`);
}

// Resources that climate does not book

async function showFailing(element, { me }) {
  const tables = [];
  const refresh = () => tables.forEach((table) => table.refresh());
  tables.push(table(me, "set_aside", refresh), table(me, "failing", refresh));
  replace(element,
    failingSection("set-aside", "Set aside",
      "Operators or climate have set these hosts aside. climate books them for no new lease.", tables[0]),
    failingSection("failing", "Failing", "The cloud reports that these do not work, or a preparation has failed.",
      tables[1]));
  tables.forEach((item) => item.load());
  const stop = keepFresh(refresh, 10);
  return () => {
    stop();
    tables.forEach((item) => item.stop());
  };
}

function failingSection(id, title, hint, { element }) {
  return h("section", { class: "card", "aria-labelledby": id }, h("h2", { id }, title), h("p", { class: "hint" }, hint),
    element);
}

function table(me, state, changed) {
  const caption = state === "set_aside" ? "Resources that are set aside" : "Failing resources";
  return new PagedTable({
    caption, path: "/v2/resources", list: "resources", sort: "name", columns: columns(me, state, changed),
    filter: () => ({ state, bookings: may(me, "resources:get_bookings") ? "true" : "" }),
    empty: () => (state === "set_aside" ? "No host is set aside." : "Nothing is failing."),
  });
}

function columns(me, state, changed) {
  const act = state === "set_aside" ? ["Return to service", returnToService] : ["Set aside", setAsideDialog];
  return [
    { label: "Name", sort: "name", header: true, cell: (item) => resourceLink(item.id, item.name) },
    { label: "Type", cell: (item) => typeTitle(item.resource_type) },
    { label: "State", class: "nowrap", cell: stateOf },
    ...(state === "set_aside" ? [{ label: "Reason", cell: (item) => reasonOf(item) }]
      : [{ label: "Cloud", cell: (item) => cloud(item) }]),
    { label: "Properties", cell: (item) => shortProperties(item.properties, 3) },
    { label: "Held by", cell: ({ now, next }) => held(now, next) },
    ...(may(me, "readiness:put")
      ? [{ label: act[0], hidden: true, class: "act", cell: (item) => (item.resource_type === "physical:host"
      ? button(act[0], () => act[1]([item], changed), { kind: "small", "aria-label": `${act[0]}: ${item.name}`,
        "data-focus": "act" }) : "") }] : []),
  ];
}

function reasonOf({ power }) {
  if (!power || !power.set_aside) return h("span", { class: "quiet" }, "unknown");
  return [h("span", { class: "reason" }, name(power.set_aside)),
    h("div", { class: "small quiet" }, "since ", when(power.set_aside_at))];
}

function cloud({ power }) {
  if (!power || power.up === null) return h("span", { class: "quiet" }, "no report");
  return [power.up ? "up" : "down", power.seen_at ? h("div", { class: "small quiet" }, `heard ${ago(power.seen_at)}`)
    : null];
}

function held(now, next) {
  if (now) return leaseLink(now.lease_id, now.lease_name);
  return next ? [leaseLink(next.lease_id, next.lease_name), h("div", { class: "small quiet" }, "later")]
    : h("span", { class: "quiet" }, "nobody");
}

// The latest notifications as they happen, and the subscriptions of all projects.

const SHOWN = 50; // notifications in the list
const BACK = 200; // numbers before the last one that are looked through at first
const POLL = 3; // seconds
const EVENT_TYPES = [
  ["", "All"], ["lease.create", "Created"], ["lease.update", "Changed"], ["lease.event.*", "Events"],
  ["lease.delete", "Deleted"],
  ["node.*", "Hosts"], ["audit.*", "Self-audit"], ["subscription.suspended", "Suspended subscriptions"],
];

async function showNotifications(element, { me }) {
  const log = may(me, "notifications:get_all") ? new Log() : null;
  const list = may(me, "subscriptions:get_all") ? subscriptionsList(me, { all: true }) : null;
  replace(element, log ? log.element : null, list
    ? [h("div", { class: "title" }, h("h2", { class: "grow" }, "Subscriptions and dead letters"), list.create),
      list.element] : null);
  const stops = [];
  if (list) {
    list.table.load();
    stops.push(keepFresh(() => list.table.refresh(), 15), () => list.table.stop());
  }
  if (log) {
    log.begin();
    stops.push(keepFresh(() => log.more(), POLL));
  }
  return () => stops.forEach((stop) => stop());
}

class Log {
  constructor() {
    this.after = null;
    this.items = [];
    this.paused = false;
    this.list = h("ol", { class: "log", tabindex: "0", "aria-label": "Latest notifications, the newest first" });
    this.note = h("div", { role: "alert" });
    this.type = h("select", {}, EVENT_TYPES.map(([value, words]) => h("option", { value }, words)));
    this.type.addEventListener("change", () => this.begin());
    this.pause = button("Pause", () => this.toggle(), { "aria-pressed": "false" });
    this.element = h("section", { class: "card", "aria-labelledby": "log" },
      h("h2", { id: "log" }, "Latest notifications"),
      h("div", { class: "filters" }, field("Type", this.type), this.pause), this.note, this.list);
  }

  toggle() {
    this.paused = !this.paused;
    this.pause.setAttribute("aria-pressed", String(this.paused));
    this.pause.textContent = this.paused ? "Continue" : "Pause";
    if (!this.paused) this.more();
  }

  /** Begin a little before the last notification. */
  async begin() {
    this.items = [];
    this.after = null;
    await this.attempt(async () => {
      const { after } = await get("/v2/notifications?limit=0");
      this.after = Math.max(0, after - BACK);
    });
    this.draw();
    await this.more();
  }

  async more() {
    if (this.paused || this.after === null || this.busy) return;
    this.busy = true;
    await this.attempt(() => this.page());
    this.busy = false;
  }

  async page() {
    const type = this.type.value;
    const body = await get(`/v2/notifications${query({ after: this.after, event_type: type, limit: BACK })}`);
    if (type !== this.type.value) return;
    this.after = body.after;
    if (!body.notifications.length) return;
    this.items = [...body.notifications.reverse(), ...this.items].slice(0, SHOWN);
    this.draw();
  }

  async attempt(work) {
    try {
      await work();
      this.note.replaceChildren();
    } catch (error) {
      if (error.code === "notifications_removed") this.after = error.body.oldest - 1;
      else if (error.code !== "offline") replace(this.note, problemNote(error));
    }
  }

  draw() {
    const shown = new Map([...this.list.children].map((item) => [item.dataset.key, item]));
    const rows = this.items.map((item) => shown.get(String(item.seq)) || row(item));
    if (!rows.length) return replace(this.list, h("li", { class: "empty" }, "No notification of this type is recent."));
    for (const child of [...this.list.children]) if (!rows.includes(child)) child.remove();
    rows.forEach((item, at) => { if (this.list.children[at] !== item) this.list.insertBefore(item,
      this.list.children[at] || null); });
  }
}

function row({ seq, event_type: type, lease_id: lease, created_at: at, payload }) {
  const date = new Date(at);
  const bad = payload.status === "ERROR" || /broken|suspended|not_|_lost/.test(type);
  return h("li", { dataset: { key: String(seq) } }, icon(bad ? "warning" : "dot"),
    h("div", {}, h("b", {}, name(type)), lease ? [" ", leaseLink(lease, payload.name || lease)] : null,
      payload.project_id ? h("span", { class: "quiet" }, " in ", name(payload.project_id)) : null,
      payload.reason || payload.error ? h("div", { class: "small reason" },
        name(typeof payload.error === "object" ? JSON.stringify(payload.error) : payload.reason || payload.error))
          : null),
    h("span", { class: "quiet small nowrap" }, h("time", { datetime: at }, `${day(date)}, ${clockSeconds(date)}`),
      h("span", { class: "seq" }, ` #${plain(count(seq))}`)));
}
