// Getting ready: hosts that provisioners prepare, and which share of leases was ready in time.

import { get, query } from "../api.js";
import { h, icon, name, replace } from "../dom.js";
import { duration } from "../time.js";
import { may } from "../tables/actions.js";
import { count, leaseLink, plural, resourceLink, when } from "../tables/cells.js";
import { keepFresh } from "../tables/refresh.js";
import { PagedTable, plainTable } from "../tables/table.js";
import { claim, emptyCard, PeriodCard, stateFilter } from "./tasks.js";

const STATES = { wanted: ["ring", "Waits for a provisioner"], accepted: ["half", "Under way"],
  ready: ["check", "Ready"], failed: ["refused", "Failed"], over: ["dot", "Over"] };

/** Show the tab. */
export async function show(element, { me, params }) {
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
