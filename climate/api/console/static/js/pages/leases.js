// Lists of leases: of the project, of all projects, and those that count towards the limits.

import { get, keepFocus, keepFresh, onChange, query } from "../api.js";
import { announce, button, debounce, field, h, icon, link, loading, momentField, name, replace } from "../dom.js";
import { badges, contents, eventWords, nextEvent, stackedTime, typeTitle } from "../lease/words.js";
import { count, leaseLink, leaseStatus, meter, PagedTable, rememberParams, when } from "../tables/table.js";
import { duration, iso, range, serverNow } from "../time.js";

const PAGE = 50;
const STATES = {
  current: ["Now and later",
    ["CREATING", "PENDING", "STARTING", "ACTIVE", "UPDATING", "TERMINATING", "DELETING", "ERROR"]],
  later: ["Scheduled", ["CREATING", "PENDING"]],
  running: ["Running", ["STARTING", "ACTIVE", "UPDATING", "TERMINATING"]],
  failed: ["Failed", ["ERROR"]],
  over: ["Ended", ["TERMINATED"]],
  all: ["All", []],
  removed: ["Removed", null], // of another list of the API
};
const COLUMNS = [["Lease", "name"], ["Status", null], ["Start", "start"], ["End", "end"], ["Next", null]];

function apiQuery(params) {
  const [, status] = STATES[params.get("state")] || STATES.current;
  return query({
    limit: PAGE, marker: params.get("marker"), sort: params.get("sort") || "start", status,
    name: params.get("name"), resource_type: params.get("type"),
    ends_after: params.get("from"), starts_before: params.get("to"), all_projects: params.get("all") && "true",
  });
}

function nextSort(column, present) {
  return present === column ? `-${column}` : column;
}

export async function mount(element, { me, params, navigate, title }) {
  title("Leases");
  const body = h("div", { class: "card", id: "leases" });
  const reserve = me.allowed["leases:post"]
    ? link("/console/new", [icon("plus"), "Reserve"], { class: "button primary" }) : null;
  replace(element, h("div", { class: "page" },
    h("div", { class: "title inline" }, h("h1", {}, "Leases"), h("div", { class: "actions" }, reserve)),
    filters(me, params, navigate), body));
  const view = { me, params, navigate, body, before: null };
  await loading(body, () => load(view), "leases");
  const refresh = debounce(() => refreshTable(view), 300);
  const stop = onChange(refresh);
  const timer = setInterval(() => { if (!document.hidden) refresh(); }, 15_000);
  return () => {
    stop();
    refresh.cancel();
    clearInterval(timer);
  };
}

function filters(me, params, navigate) {
  const go = (changes) => navigate(address(params, { marker: null, ...changes }));
  const select = (key, choices, fallback) => {
    const control = h("select", { name: key, value: params.get(key) || fallback },
      choices.map(([value, text]) => h("option", { value }, text)));
    control.addEventListener("change", () => go({ [key]: control.value === fallback ? null : control.value }));
    return control;
  };
  const states = Object.entries(STATES).map(([key, [text]]) => [key, text]);
  const types = [["", "All types"], ...me.resource_types.map((type) => [type, typeTitle(type)])];
  const search = h("input",
    { name: "name", type: "search", value: params.get("name") || "", maxlength: 80, "aria-label": "Exact name" });
  const from = momentField("Ends after", { date: dateOf(params.get("from")) });
  const to = momentField("Starts before", { date: dateOf(params.get("to")) });
  const submit = (event) => {
    event.preventDefault();
    go({ name: search.value, from: from.read() && iso(from.read()), to: to.read() && iso(to.read()) });
  };
  const isPast = params.get("state") === "removed"; // The API filters removed leases only by project.
  const isTimed = params.get("from") || params.get("to");
  return h("form", { class: "filters", role: "search", "aria-label": "Filter leases", onsubmit: submit },
    field("Status", select("state", states, "current")),
    !isPast && me.resource_types.length > 1 ? field("Type", select("type", types, "")) : null,
    isPast ? null : field("Name", search),
    me.allowed["leases:get_all"]
      ? field("Projects", select("all", [["", "This project"], ["1", "All projects"]], "")) : null,
    isPast ? null : h("details", { class: "more", open: Boolean(isTimed) }, h("summary", {}, "Time"),
      h("div", { class: "filters" }, from.element, to.element)),
    isPast ? null : h("button", { type: "submit", class: "button" }, "Apply"));
}

function dateOf(text) {
  const date = new Date(text || NaN);
  return Number.isNaN(date.getTime()) ? null : date;
}

function address(params, changes) {
  const values = Object.fromEntries(params);
  return `/console/leases${query({ ...values, ...changes })}`;
}

function pastQuery(params) {
  return query({ limit: PAGE, marker: params.get("marker"), all_projects: params.get("all") && "true" });
}

async function loadPast(view, options) {
  const { past_leases: leases, next } = await get(`/v2/past-leases${pastQuery(view.params)}`, options);
  view.before = JSON.stringify([leases, next]);
  if (!leases.length) return h("div", { class: "empty" }, h("p", {}, "The service keeps no removed leases."));
  const columns = h("thead", {}, h("tr", {}, ["Lease", "Start", "Ended"].map((text, index) =>
    h("th", { scope: "col", class: index === 1 ? "optional" : null }, text))));
  return [h("div", { class: "table" }, h("table", { class: "leases" },
    h("caption", { class: "visually-hidden" }, "Removed leases"), columns, h("tbody", {}, leases.map(pastRow)))),
  pager(view, next)];
}

function pastRow(lease) {
  const names = lease.reservations.flatMap(({ resources }) => resources.map((item) => item.name));
  const some = `${names.slice(0, 6).join(", ")}${names.length > 6 ? ` and ${names.length - 6} more` : ""}`;
  return h("tr", { "data-lease": lease.id },
    h("th", { scope: "row" }, name(lease.name), h("small", { class: "quiet line" }, name(some))),
    h("td", { class: "optional" }, stackedTime(lease.started_at || lease.start)), h("td", {}, stackedTime(lease.ended_at)));
}

async function load(view, options) {
  if (view.params.get("state") === "removed") return loadPast(view, options);
  const { leases, next } = await get(`/v2/leases${apiQuery(view.params)}`, options);
  view.before = JSON.stringify([leases, next]);
  if (!leases.length) return empty(view);
  const rows = h("tbody", {}, leases.map((lease) => row(lease, view)));
  return [h("div", { class: "table" }, h("table", { class: "leases" },
    h("caption", { class: "visually-hidden" }, "Leases"), head(view), rows)), pager(view, next)];
}

function empty({ me, params }) {
  const isFiltered = ["name", "type", "from", "to", "state", "marker"].some((key) => params.get(key));
  if (isFiltered) {
    return h("div", { class: "empty" }, h("p", {}, "No lease matches these filters."),
      h("p", {}, link("/console/leases", "Remove the filters")));
  }
  return h("div", { class: "empty" }, h("p", {}, "This project has no present or future leases."),
    me.allowed["leases:post"]
      ? h("p", {}, link("/console/new", "Reserve resources", { class: "button primary" })) : null,
    h("p", {}, link("/console/leases?state=over", "Show leases that have ended")));
}

function head({ params, navigate }) {
  const present = params.get("sort") || "start";
  const cells = COLUMNS.map(([text, key]) => {
    const classes = text === "Lease" || text === "Status" ? null : "optional";
    if (!key) return h("th", { scope: "col", class: classes }, text);
    const direction = { [key]: "ascending", [`-${key}`]: "descending" }[present];
    const sort = () => navigate(address(params, { sort: nextSort(key, present), marker: null }));
    return h("th", { scope: "col", class: classes, "aria-sort": direction || null },
      h("button", { type: "button", class: "sort", onclick: sort, "data-focus": `sort-${key}` }, text,
        direction ? icon(direction === "ascending" ? "up" : "down") : null));
  });
  return h("thead", {}, h("tr", {}, cells));
}

function row(lease, { params }) {
  const now = serverNow();
  const next = nextEvent(lease);
  const [start, end] = [new Date(lease.start), new Date(lease.end)];
  return h("tr", { "data-lease": lease.id },
    h("th", { scope: "row" }, link(`/console/leases/${lease.id}`, name(lease.name), { "data-focus": lease.id }),
      h("small", { class: "quiet line" }, contents(lease.reservations)),
      params.get("all") ? h("small", { class: "quiet line" }, "Project ", name(lease.project_id)) : null,
      h("small", { class: "quiet line narrow" }, range(start, end))),
    h("td", {}, h("div", { class: "badges" }, badges(lease, now))),
    h("td", { class: "optional" }, stackedTime(start)),
    h("td", { class: "optional" }, stackedTime(end)),
    h("td", { class: "optional" }, next ? [eventWords(next), h("small", { class: "line" }, stackedTime(next.at))]
      : h("span", { class: "quiet" }, "Nothing")));
}

function pager({ params, navigate }, next) {
  const marker = next && new URL(next, location.origin).searchParams.get("marker");
  if (!marker && !params.get("marker")) return null;
  return h("div", { class: "pager" },
    params.get("marker") ? button("First page", () => navigate(address(params, { marker: null }))) : h("span"),
    marker ? button(["Next page", icon("right")], () => navigate(address(params, { marker }))) : null);
}

async function refreshTable(view) {
  const before = view.before;
  try {
    const content = await load(view, { background: true });
    if (before === view.before && view.body.querySelector("table, .empty")) return;
    const focused = view.body.contains(document.activeElement) && document.activeElement.dataset.focus;
    replace(view.body, content);
    if (focused) view.body.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    announce("The list of leases has changed.");
  } catch (error) {
    if (error.status === 403 || error.status === 401) return;
    // The banner says that the service is away; the table stays.
  }
}

// The leases of all projects.

const STATUSES = [["", "Not over"], ["ACTIVE", "Running"], ["PENDING", "Later"], ["ERROR", "Failed"],
  ["TERMINATED", "Ended"], ["all", "All"]];
const OPEN = ["PENDING", "STARTING", "ACTIVE", "UPDATING", "TERMINATING", "DELETING", "ERROR"];

export async function showAllLeases(element, { me, params }) {
  const status = h("select", {},
    STATUSES.map(([value, words]) => h("option", { value, selected: value === (params.get("status") || "") }, words)));
  const type = h("select", {}, h("option", { value: "" }, "Any"),
    (me.resource_types || []).map((item) => h("option", { value: item, selected: item === params.get("type") },
      typeTitle(item))));
  const label = h("input", { type: "search", value: params.get("name") || "", maxlength: 80 });
  const table = new PagedTable({
    caption: "Leases of all projects", path: "/v2/leases", list: "leases", sort: params.get("sort") || "start",
    marker: params.get("marker"), columns: columns(),
    filter: () => ({ all_projects: "true", resource_type: type.value, name: label.value.trim(),
      status: status.value === "all" ? "" : status.value || OPEN }),
    moved: ({ marker, sort }) => rememberParams({ marker, sort }),
    empty: () => "No lease matches.",
  });
  const changed = () => {
    rememberParams({ status: status.value, type: type.value, name: label.value.trim(), marker: null });
    table.load({ first: true });
  };
  for (const control of [status, type, label]) control.addEventListener("change", changed);
  replace(element, h("div", { class: "filters", role: "search" }, field("Status", status), field("With", type),
    field("Name is", label)),
    h("section", { class: "card flush", "aria-label": "Leases of all projects" }, table.element));
  table.load();
  const stop = keepFresh(() => table.refresh(), 15);
  return () => {
    stop();
    table.stop();
  };
}

function columns() {
  return [
    { label: "Lease", sort: "name", header: true, cell: (lease) => leaseLink(lease.id, lease.name) },
    { label: "Status", class: "nowrap", cell: leaseStatus },
    { label: "Project", cell: (lease) => name(lease.project_id) },
    { label: "Owner", cell: (lease) => name(lease.user_id) },
    { label: "Resources", cell: (lease) => contents(lease.reservations) },
    { label: "Start", sort: "start", cell: (lease) => when(lease.start) },
    { label: "End", sort: "end", cell: (lease) => when(lease.end) },
  ];
}

// What the project and the user may have, what they have, and which leases count.

const HOUR = 3600;

export async function mountLimits(element, context) {
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
