// Resources that climate does not book: in quarantine, or failing.

import { button, h, name, replace } from "../dom.js";
import { typeTitle } from "../lease/words.js";
import { endQuarantine, may, quarantineDialog } from "../tables/actions.js";
import { ago, leaseLink, resourceLink, stateOf, when } from "../tables/cells.js";
import { shortProperties } from "../tables/properties.js";
import { keepFresh } from "../tables/refresh.js";
import { PagedTable } from "../tables/table.js";

/** Show the tab. */
export async function show(element, { me }) {
  const tables = [];
  const refresh = () => tables.forEach((table) => table.refresh());
  tables.push(table(me, "set_aside", refresh), table(me, "failing", refresh));
  replace(element,
    section("quarantined", "In quarantine",
      "Operators or climate have set these hosts aside. climate books them for no new lease.", tables[0]),
    section("failing", "Failing", "The cloud reports that these do not work, or a preparation has failed.", tables[1]));
  tables.forEach((item) => item.load());
  const stop = keepFresh(refresh, 10);
  return () => {
    stop();
    tables.forEach((item) => item.stop());
  };
}

function section(id, title, hint, { element }) {
  return h("section", { class: "card", "aria-labelledby": id }, h("h2", { id }, title), h("p", { class: "hint" }, hint),
    element);
}

function table(me, state, changed) {
  const caption = state === "set_aside" ? "Resources in quarantine" : "Failing resources";
  return new PagedTable({
    caption, path: "/v2/resources", list: "resources", sort: "name", columns: columns(me, state, changed),
    filter: () => ({ state, bookings: may(me, "resources:get_bookings") ? "true" : "" }),
    empty: () => (state === "set_aside" ? "No host is in quarantine." : "Nothing is failing."),
  });
}

function columns(me, state, changed) {
  const act = state === "set_aside" ? ["End quarantine", endQuarantine] : ["Quarantine", quarantineDialog];
  return [
    { label: "Name", sort: "name", header: true, cell: (item) => resourceLink(item.id, item.name) },
    { label: "Type", cell: (item) => typeTitle(item.resource_type) },
    { label: "State", class: "nowrap", cell: stateOf },
    ...(state === "set_aside" ? [{ label: "Reason", cell: (item) => reason(item) }]
      : [{ label: "Cloud", cell: (item) => cloud(item) }]),
    { label: "Properties", cell: (item) => shortProperties(item.properties, 3) },
    { label: "Held by", cell: ({ now, next }) => held(now, next) },
    ...(may(me, "readiness:put")
      ? [{ label: act[0], hidden: true, class: "act", cell: (item) => (item.resource_type === "physical:host"
      ? button(act[0], () => act[1]([item], changed), { kind: "small", "aria-label": `${act[0]}: ${item.name}`,
        "data-focus": "act" }) : "") }] : []),
  ];
}

function reason({ power }) {
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
