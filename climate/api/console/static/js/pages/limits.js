// What the project and the user may have, what they have, and which leases count.

import { get } from "../api.js";
import { h, icon, link, name, replace } from "../dom.js";
import { loading } from "../forms.js";
import { contents } from "../lease/words.js";
import { duration, iso, serverNow } from "../time.js";
import { count, leaseLink, leaseStatus, meter, when } from "../tables/cells.js";
import { keepFocus, keepFresh } from "../tables/refresh.js";
import { PagedTable } from "../tables/table.js";

const HOUR = 3600;

/** Show the limits. */
export async function mount(element, context) {
  context.title("Limits");
  const { me } = context;
  const boxes = h("div");
  const table = leasesTable(me);
  replace(element, h("div", { class: "page" }, h("div", { class: "title" }, h("h1", {}, "Limits")), boxes,
    h("section", { class: "card", "aria-labelledby": "counting" }, h("h2", { id: "counting" }, "Leases that count"),
      h("p", { class: "hint" }, "A lease counts from its creation to its end. Cleaning time does not count."),
      table.element)));
  let print = "";
  const load = async () => {
    const limits = await get("/v2/limits");
    const same = JSON.stringify(limits) === print;
    print = JSON.stringify(limits);
    return same ? null : draw(limits, me);
  };
  table.load();
  await loading(boxes, load, "the limits");
  const stop = keepFresh(async () => {
    table.refresh();
    const content = await load();
    if (content) keepFocus(boxes, () => replace(boxes, content));
  }, 30);
  return () => {
    stop();
    table.stop();
  };
}

function draw({ apply, period, parties }, me) {
  const note = apply ? null : h("div", { class: "note" }, icon("dot"), h("p", {},
    "Limits do not apply to you here: the service has none, or your role or project is exempt. ",
    "What you have still counts as use."));
  return h("div", { class: "stack-20" }, note, h("div", { class: "halves" },
    parties.map((party) => partyCard(party, period, me))));
}

function partyCard({ scope, id, limits, used }, period, me) {
  const own = scope === "project" ? me.project : me.user;
  const heading = `limits-${scope}`;
  return h("section", { class: "card", "aria-labelledby": heading, dataset: { scope } },
    h("h2", { id: heading }, scope === "project" ? "Project " : "You, ", name(own.id === id ? own.name || id : id)),
    scope === "user" ? h("p", { class: "hint" }, "In all projects together.") : null,
    h("div", { class: "meters" },
      meter("Leases that are not over", used.leases, limits.leases),
      meter("Hosts at once, at the peak", used.hosts, limits.hosts),
      meter("Virtual CPUs at once, at the peak", used.vcpus, limits.vcpus),
      meter(`Host-hours in any ${duration(period)}, at most`, used.host_hours, limits.host_hours, { unit: " h" })),
    h("h3", {}, "Rules"), rules(limits));
}

function rules(limits) {
  const sentences = [
    [limits.duration, (text) => ["A lease lasts at most ", text, "."]],
    [limits.horizon, (text) => ["A lease ends at most ", text, " from now."]],
    [limits.extension_window, (text) => ["You can prolong a running lease only in its last ", text, "."]],
    [limits.extension, (text) => ["You can prolong a running lease by at most ", text, " at once."]],
  ].filter(([seconds]) => seconds !== null).map(([seconds, sentence]) =>
    h("li", {}, sentence(h("b", {}, inWords(seconds)))));
  return sentences.length ? h("ul", { class: "rules" }, sentences)
    : h("p", { class: "quiet" },
      "Leases may last as long, reach as far ahead, and be prolonged as much as resources allow.");
}

function inWords(seconds) {
  const short = duration(seconds);
  const hours = `${count(seconds / HOUR)} h`;
  return short === hours || seconds < HOUR ? short : `${short} (${hours})`;
}

function leasesTable(me) {
  const until = iso(serverNow());
  return new PagedTable({
    caption: "Leases that count", path: "/v2/leases", list: "leases", sort: "start", limit: 25,
    filter: () => ({ ends_after: until }),
    columns: [
      { label: "Lease", sort: "name", header: true, cell: (lease) => leaseLink(lease.id, lease.name) },
      { label: "Status", cell: leaseStatus, class: "nowrap" },
      { label: "Resources", cell: (lease) => contents(lease.reservations) },
      { label: "Owner", cell: (lease) => (lease.user_id === me.user.id ? "You" : name(lease.user_id)) },
      { label: "Start", sort: "start", cell: (lease) => when(lease.start) },
      { label: "End", sort: "end", cell: (lease) => when(lease.end) },
      { label: "Lasts", cell: (lease) => duration((new Date(lease.end) - new Date(lease.start)) / 1000),
        class: "number nowrap" },
    ],
    empty: () => [h("p", {}, "No lease counts towards the limits."), me.allowed["leases:post"]
      ? h("p", {}, link("/console/new", "Make a lease")) : null],
  });
}
