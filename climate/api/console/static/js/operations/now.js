// Now: alarms, work that is overdue, and the managers that do it.

import { get } from "../api.js";
import { h, icon, name, replace } from "../dom.js";
import { loading } from "../forms.js";
import { duration } from "../time.js";
import { may } from "../tables/actions.js";
import { ago, count, leaseLink, plural, when } from "../tables/cells.js";
import { keepFocus, keepFresh } from "../tables/refresh.js";
import { PagedTable, plainTable } from "../tables/table.js";

const LATE = 60; // seconds after which overdue work is an alarm
const TYPES = {
  start_lease: "Start", end_lease: "End", before_end_lease: "Reminder of the end",
  before_start_lease: "Reminder of the start", update_lease: "Update",
};

/** Show the tab. */
export async function show(element, { me }) {
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

/** What an operator must look at: `[kind, title, sentence]`. */
export function alarmsOf(body, overdue) {
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
      { label: "Event", header: true, cell: ({ type }) => TYPES[type] || name(type) },
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

/** What waits for managers, in a sentence. */
function waiting({ due, oldest_due_at: oldest, unpublished, unpublished_since: since }) {
  const total = Object.values(due).reduce((sum, number) => sum + number, 0);
  const events = total ? `${plural(total, "due event")} unclaimed, the oldest due ${ago(oldest)}`
    : "no due event unclaimed";
  const messages = unpublished ? `${plural(unpublished, "notification")} unpublished, the oldest from ${ago(since)}`
    : "no notification unpublished";
  return h("p", { class: "small" }, `Waiting for managers: ${events}; ${messages}.`);
}
