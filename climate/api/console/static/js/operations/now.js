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
  const alarms = h("div", { class: "stack", id: "alarms" });
  const managers = h("div");
  const overdue = may(me, "events:get") ? overdueTable() : null;
  replace(element, alarms,
    overdue ? section("overdue", "Overdue work", "Events whose time has come and that climate has not carried out yet.",
      overdue.element) : null,
    may(me, "managers:get") ? section("managers", "Managers", "The processes that start and end leases.", managers)
      : null);
  const state = { me, alarms, managers, overdue };
  await loading(managers, () => load(state), "the managers");
  const stop = keepFresh(() => refresh(state), 5);
  return () => {
    stop();
    if (overdue) overdue.stop();
  };
}

function section(id, title, hint, content) {
  return h("section", { class: "card", "aria-labelledby": id }, h("h2", { id }, title), h("p", { class: "hint" }, hint),
    content);
}

async function load({ me, alarms, overdue }) {
  const [body] = await Promise.all([may(me, "managers:get") ? get("/v2/managers") : null, overdue
    ? overdue.load({ quiet: Boolean(overdue.loaded) }) : null]);
  drawAlarms(alarms, body, overdue && overdue.items);
  return body ? draw(body) : null;
}

async function refresh(state) {
  const content = await load(state);
  if (content) keepFocus(state.managers, () => replace(state.managers, content));
}

function drawAlarms(element, body, overdue) {
  const notes = alarmsOf(body, overdue).map(([kind, title, text]) => h("div", { class: `note ${kind}` },
    icon(kind === "bad" ? "refused" : "warning"), h("div", {}, h("p", {}, h("b", {}, title), " ", text))));
  const print = notes.map((item) => item.textContent).join();
  if (print === element.print) return;
  element.print = print;
  replace(element, notes.length ? h("div", { role: "alert", class: "stack" }, notes)
    : h("div", { class: "note good" }, icon("check"),
      h("div", {}, h("p", {}, h("b", {}, "No alarm."), " Managers run, and no work is late."))));
}

function alarmsOf(body, overdue) {
  const alarms = [];
  if (body) {
    const alive = body.managers.filter((item) => item.alive);
    const stalled = alive.filter((item) => names(item.stalled).length);
    if (!alive.length) alarms.push(["bad", "No manager runs.",
      "Leases neither start nor end until one does. Start climate-manager."]);
    if (stalled.length) alarms.push(["care", `${plural(stalled.length, "manager")} with a stalled loop.`,
      "Look at its log, or restart it."]);
  }
  const late = (overdue || []).filter((item) => item.late_seconds > LATE);
  if (late.length) alarms.push(["care", `${plural(late.length, "event")} late by more than a minute.`,
    "The reasons are below."]);
  const failing = (overdue || []).filter((item) => item.last_error);
  if (failing.length) alarms.push(["care", `${plural(failing.length, "event")} failed and climate retries it.`,
    "The errors are below."]);
  return alarms;
}

function overdueTable() {
  return new PagedTable({
    caption: "Overdue work", path: "/v2/overdue-events", list: "events", limit: 50, fresh: true,
    columns: [
      { label: "Event", header: true, cell: (event) => TYPES[event.type] || name(event.type) },
      { label: "Lease", cell: (event) => leaseLink(event.lease_id, event.lease_name) },
      { label: "Project", cell: (event) => name(event.project_id) },
      { label: "Due", cell: (event) => when(event.due_at) },
      { label: "Late by", class: "number nowrap", cell: (event) => duration(event.late_seconds) },
      { label: "Attempts", class: "number", cell: (event) => count(event.attempt || 0) },
      { label: "Reason", cell: (event) => [h("div", {}, name(event.reason)), event.last_error
        ? h("small", { class: "bad-text reason" }, name(event.last_error)) : null] },
    ],
    empty: () => [icon("check"), " Nothing is overdue."],
  });
}

function draw({ managers, lateness }) {
  const table = managers.length ? plainTable({
    caption: "Managers", items: managers,
    columns: [
      { label: "Manager", header: true, cell: (item) => name(item.id) },
      { label: "State", class: "nowrap", cell: (item) => h("span", { class: "state" },
        icon(item.alive ? "check" : "refused"), item.alive ? "Alive" : "Silent") },
      { label: "Heartbeat", class: "nowrap", cell: (item) => h("time", { datetime: item.beat_at }, ago(item.beat_at)) },
      { label: "Started", cell: (item) => when(item.started_at) },
      { label: "Loops", cell: loops },
    ],
  }) : h("p", { class: "empty" }, "No manager has registered.");
  return [latenessLine(lateness), table];
}

function loops(item) {
  const stalled = names(item.stalled);
  return h("span", {}, plural(Object.keys(item.loops || {}).length, "loop"),
    stalled.length ? h("div", {}, icon("warning"), " Stalled: ",
      stalled.map((text, at) => [at ? ", " : "", name(text)])) : null);
}

function names(value) {
  return Array.isArray(value) ? value : Object.keys(value || {});
}

function latenessLine(lateness) {
  const entries = Object.entries(lateness || {}).filter(([, value]) => typeof value === "number");
  if (!entries.length) return null;
  return h("p", {}, entries.map(([key, value], at) => [at ? ", " : "Lateness of leases: ", key.replaceAll("_", " "),
    " ", h("b", {}, duration(value))]), ".");
}
