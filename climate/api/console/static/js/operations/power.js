// Without power: hosts that are switched off, and what that saves.

import { get, query } from "../api.js";
import { h, icon, name, replace } from "../dom.js";
import { may } from "../tables/actions.js";
import { count, resourceLink, when } from "../tables/cells.js";
import { keepFresh } from "../tables/refresh.js";
import { PagedTable, plainTable } from "../tables/table.js";
import { claim, emptyCard, PeriodCard, stateFilter } from "./tasks.js";

const STATES = {
  wanted: ["ring", "Waits for a provisioner"], accepted: ["half", "Being switched off"], off: ["power", "Off"],
  waking: ["half", "Being switched on"], kept: ["warning", "Left on"], over: ["dot", "Over"],
};

/** Show the tab. */
export async function show(element, { me, params }) {
  if (me.features && me.features.provisioning === false) {
    emptyCard(element, "The service does not switch hosts off.",
      "Set [provisioning] enabled and power_off to save energy.");
    return () => {};
  }
  const filter = stateFilter(STATES, params, ["wanted", "accepted", "off", "waking", "kept"],
    () => table.load({ first: true }));
  const table = new PagedTable({
    caption: "Hosts without power", path: "/v2/shutdowns", list: "shutdowns", sort: "-wanted", fresh: true,
    filter: () => ({ state: filter.states() }), columns: columns(),
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

function columns() {
  return [
    { label: "Host", header: true, cell: (task) => resourceLink(task.resource_id, task.node) },
    { label: "State", cell: (task) => h("span", { class: "state" }, icon(STATES[task.state][0]),
      STATES[task.state][1]) },
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
