// Lists of leases: of the project, of all projects, and those that count towards the limits.

import { api, get, keepFocus, keepFresh, query } from "../api.js";
import { announce, button, field, h, icon, link, loading, momentField, name, replace } from "../dom.js";
import {
  contents, eventWords, LIMITS, limitTitle, nextEvent, placeWords, typeTitle,
} from "../lease/words.js";
import { count, leaseLink, leaseStatus, meter, PagedTable, rememberParams, when } from "../tables/table.js";
import { clock, duration, iso, range, serverNow } from "../time.js";


const STATES = {
  current: ["Now and later",
    ["CREATING", "WAITING", "PENDING", "STARTING", "ACTIVE", "UPDATING", "TERMINATING", "DELETING", "ERROR"]],
  waiting: ["Waiting", ["WAITING"]],
  later: ["Scheduled", ["CREATING", "PENDING"]],
  running: ["Running", ["STARTING", "ACTIVE", "UPDATING", "TERMINATING"]],
  failed: ["Failed", ["ERROR"]],
  over: ["Ended", ["TERMINATED"]],
  all: ["All", []],
  removed: ["Removed", null], // of another list of the API
};

export function mount(element, context) {
  const { me, title } = context;
  title("Leases");
  const reserve = me.allowed["leases:post"]
    ? link("/console/new", [icon("plus"), "Reserve"], { class: "button primary" }) : null;
  const page = h("div", { class: "page" },
    h("div", { class: "title inline" }, h("h1", {}, "Leases"), h("div", { class: "actions" }, reserve)));
  replace(element, page);
  const ends = [showOffers(page, context), showLeases(page, context, "/console/leases")];
  return () => ends.forEach((end) => end());
}

/** Append the open offers of the project, hidden if there are none; returns the function that ends them. */
function showOffers(element, { me, navigate }) {
  const list = h("ul", { class: "stack" });
  const card = h("section", { class: "card", "aria-label": "Offers", hidden: true },
    h("h2", {}, "Offers"), h("p", { class: "hint" }, "Held for you. Accept an offer, or others can book it later."), list);
  element.append(card);
  let print = "";
  const act = async (method, path) => {
    try {
      const { body } = await api(method, path);
      if (body) return navigate(`/console/leases/${body.id}`);
    } catch (error) {
      announce(error.detail, { visible: true });
    }
    return refresh();
  };
  const row = ({ id, name: called, start, end, expires_at: expires, reservations }) => {
    const path = `/v2/offers/${id}`;
    return h("li", { class: "actions" }, h("span", {}, h("b", {}, name(called)),
      `: ${contents(reservations)}, ${range(new Date(start), new Date(end))}, held until ${clock(new Date(expires))}`),
    me.allowed["leases:post"] && button("Accept", () => act("POST", `${path}/accept`), { kind: "primary" }),
    me.allowed["leases:delete"] && button("Release", () => act("DELETE", path)));
  };
  const refresh = async () => {
    const { offers } = await get("/v2/offers");
    if (print === (print = JSON.stringify(offers))) return;
    card.hidden = !offers.length;
    replace(list, offers.map(row));
  };
  refresh().catch((error) => console.debug(error));
  return keepFresh(refresh);
}

/** The leases of all projects, as a tab of the operations. */
export function showAllLeases(element, context) {
  context.params.set("all", "1");
  replace(element);
  return showLeases(element, context, "/console/operations/leases");
}

/** Append the filters and the table of leases; returns the function that ends them. */
function showLeases(element, { me, params, navigate }, path) {
  const isRemoved = params.get("state") === "removed";
  const address = (changes) => path + query({ ...Object.fromEntries(new URLSearchParams(location.search)),
    ...changes });
  const isOwnPage = path === "/console/leases";
  let print = "";
  const table = new PagedTable({
    caption: isRemoved ? "Removed leases" : "Leases", list: isRemoved ? "past_leases" : "leases",
    path: isRemoved ? "/v2/past-leases" : "/v2/leases", marker: params.get("marker"),
    sort: isRemoved ? "" : params.get("sort") || "start", columns: columns(me, params, isRemoved),
    filter: () => apiFilter(params, isRemoved), empty: () => empty(me, params, path),
    moved: ({ marker, sort }) => rememberParams({ marker, sort: sort === "start" ? null : sort }),
    shown: (items, quiet) => {
      const before = print;
      print = JSON.stringify(items);
      if (quiet && print !== before) announce("The list of leases has changed.");
    },
  });
  const go = (changes) => navigate(address({ marker: null, ...changes }));
  element.append(filters(me, params, go, isOwnPage && me.allowed["leases:get_all"]),
    h("section", { class: "card flush", "aria-label": "Leases" }, table.element));
  table.load();
  const stop = keepFresh(() => table.refresh(), 15);
  return () => {
    stop();
    table.stop();
  };
}

function apiFilter(params, isRemoved) {
  const projects = { all_projects: params.get("all") && "true" };
  if (isRemoved) return projects; // The API filters removed leases only by project.
  const [, status] = STATES[params.get("state")] || STATES.current;
  return { ...projects, status, name: params.get("name"), resource_type: params.get("type"),
    ends_after: params.get("from"), starts_before: params.get("to") };
}

function filters(me, params, go, mayChoose) {
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
  const isRemoved = params.get("state") === "removed";
  const isTimed = params.get("from") || params.get("to");
  return h("form", { class: "filters", role: "search", "aria-label": "Filter leases", onsubmit: submit },
    field("Status", select("state", states, "current")),
    !isRemoved && me.resource_types.length > 1 ? field("Type", select("type", types, "")) : null,
    isRemoved ? null : field("Name", search),
    mayChoose ? field("Projects", select("all", [["", "This project"], ["1", "All projects"]], "")) : null,
    isRemoved ? null : h("details", { class: "more", open: Boolean(isTimed) }, h("summary", {}, "Time"),
      h("div", { class: "filters" }, from.element, to.element)),
    isRemoved ? null : h("button", { type: "submit", class: "button" }, "Apply"));
}

function dateOf(text) {
  const date = new Date(text || NaN);
  return Number.isNaN(date.getTime()) ? null : date;
}

function empty(me, params, path) {
  if (params.get("state") === "removed") return "The service keeps no removed leases.";
  if (["name", "type", "from", "to", "state"].some((key) => params.get(key))) {
    return [h("p", {}, "No lease matches these filters."), h("p", {}, link(path, "Remove the filters"))];
  }
  return [h("p", {}, params.get("all") ? "There are no present or future leases."
    : "This project has no present or future leases."),
  me.allowed["leases:post"] ? h("p", {}, link("/console/new", "Reserve resources", { class: "button primary" })) : null,
  h("p", {}, link(`${path}?state=over`, "Show leases that have ended"))];
}

function columns(me, params, isRemoved) {
  const projects = [{ label: "Project", cell: (lease) => name(lease.project_id) },
    { label: "Owner", cell: (lease) => name(lease.user_id) }];
  if (isRemoved) {
    return [
      { label: "Lease", header: true, cell: (lease) => name(lease.name) },
      { label: "Resources", cell: heldNames },
      ...(params.get("all") ? projects.slice(0, 1) : []),
      { label: "Start", cell: (lease) => when(lease.started_at || lease.start) },
      { label: "Ended", cell: (lease) => when(lease.ended_at) },
    ];
  }
  return [
    ...COLUMNS, ...(params.get("all") ? projects : []), ...TIMES,
    { label: "Next", cell: (lease) => {
      const next = nextEvent(lease);
      return next ? [name(eventWords(next)), h("br"), when(next.at)] : h("span", { class: "quiet" }, "Nothing");
    } },
  ];
}

const COLUMNS = [
  { label: "Lease", sort: "name", header: true, cell: (lease) => leaseLink(lease.id, lease.name) },
  { label: "Status", class: "nowrap", cell: leaseStatus },
  { label: "Resources", cell: (lease) => contents(lease.reservations) },
];
const TIMES = [
  { label: "Start", sort: "start", cell: (lease) => (lease.status === "WAITING" ? place(lease) : when(lease.start)) },
  { label: "End", sort: "end", cell: (lease) => (lease.status === "WAITING" ? "" : when(lease.end)) },
];

function place(lease) {
  return h("span", { class: "quiet" }, placeWords(lease));
}

function heldNames(lease) {
  const names = lease.reservations.flatMap(({ resources }) => resources.map((item) => item.name));
  const more = names.length > 6 ? ` and ${names.length - 6} more` : "";
  return [name(names.slice(0, 6).join(", ")), more];
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
      // Many clouds reserve only hosts.
      Object.keys(LIMITS).filter((key) => used[key] || limits[key] !== null)
        .map((key) => meter(limitTitle(key, period), used[key], limits[key]))),
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
      ...COLUMNS,
      { label: "Owner", cell: (lease) => (lease.user_id === me.user.id ? "You" : name(lease.user_id)) },
      ...TIMES,
      { label: "Lasts", cell: (lease) => duration((new Date(lease.end) - new Date(lease.start)) / 1000),
        class: "number nowrap" },
    ],
    empty: () => [h("p", {}, "No lease counts towards the limits."), me.allowed["leases:post"]
      ? h("p", {}, link("/console/new", "Make a lease")) : null],
  });
}
