// The table of leases: filters in the address, pages by marker, live.

import { get, query } from "../api.js";
import { announce, button, debounce, h, icon, link, name, replace } from "../dom.js";
import { field, loading } from "../forms.js";
import { badges, when } from "../lease/parts.js";
import { contents, eventWords, nextEvent, typeTitle } from "../lease/words.js";
import { onChange } from "../live.js";
import { momentField } from "../moment.js";
import { iso, range, serverNow } from "../time.js";

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

/** The query of the API for the filters in the address. */
export function apiQuery(params) {
  const [, status] = STATES[params.get("state")] || STATES.current;
  return query({
    limit: PAGE, marker: params.get("marker"), sort: params.get("sort") || "start", status,
    name: params.get("name"), resource_type: params.get("type"),
    ends_after: params.get("from"), starts_before: params.get("to"), all_projects: params.get("all") && "true",
  });
}

/** The order that a click on a column leads to, from the present one. */
export function nextSort(column, present) {
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

/** The query for removed leases. */
export function pastQuery(params) {
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
    h("td", { class: "optional" }, when(lease.started_at || lease.start)), h("td", {}, when(lease.ended_at)));
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
    h("td", { class: "optional" }, when(start)),
    h("td", { class: "optional" }, when(end)),
    h("td", { class: "optional" }, next ? [eventWords(next), h("small", { class: "line" }, when(next.at))]
      : h("span", { class: "quiet" }, "Nothing")));
}

function pager({ params, navigate }, next) {
  const marker = next && new URL(next, location.origin).searchParams.get("marker");
  if (!marker && !params.get("marker")) return null;
  return h("div", { class: "pager" },
    params.get("marker") ? button("First page", () => navigate(address(params, { marker: null }))) : h("span"),
    marker ? button(["Next page", icon("right")], () => navigate(address(params, { marker }))) : null);
}

/** Fetch the page of the table again; the focus stays on the same lease. */
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
