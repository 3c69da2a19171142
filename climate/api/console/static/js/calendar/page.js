// The calendar page: toolbar, calendar, legend.

import { get, query } from "../api.js";
import { announce, button, debounce, h, link, plain } from "../dom.js";
import { onChange } from "../live.js";
import { iso, serverNow } from "../time.js";
import { queryOf, stateOf } from "./address.js";
import { legend, showKeys } from "./legend.js";
import { attachReserve } from "./reserve.js";
import { dateButtons, options, today, typeSwitch, zoomSwitch } from "./toolbar.js";
import { attachTouch } from "./touch.js";
import { CalendarView } from "./view.js";
import { cellWords, spanWords, typeWords } from "./words.js";

// Stacks have parts of other types, and no rows of their own.
const WITHOUT_ROWS = ["virtual:stack"];
const CORNERS = [1, 2, 3, 4]; // of the box, see calendar.css
const ORDER = [
  "physical:host", "virtual:instance", "virtual:volume", "virtual:network", "virtual:floatingip", "flavor:instance",
];

/** Show the calendar; returns how to leave it. */
export async function mount(element, context) {
  context.title("Calendar");
  const types = calendarTypes(context.me);
  const phone = innerWidth < 720;
  const view = new CalendarView(stateOf(context.params, types, { zoom: phone ? "day" : "week", groupBy: null }));
  element.classList.add("calendar");
  element.view = view;
  const layer = h("div", { class: "calendar-layer" });
  const notice = h("div", { class: "calendar-notice" });
  const tools = toolbar(view, types, context);
  const [key, endLegend] = legend();
  const corners = CORNERS.map(() => h("i", { "aria-hidden": "true" }));
  element.append(h("h1", { class: "visually-hidden" }, "Calendar"), tools.element,
    h("div", { class: "calendar-box" }, view.element, corners, notice, layer), key);
  const needs = types.length > 1 ? loadNeeds().then((known) => view.setNeeds(known)) : null;
  if (view.state.resourceType !== types[0]) await needs; // The first type needs nothing, and should not wait.
  view.start();
  const ends = [endLegend, attachTouch(view), attachReserve(view, { bar: tools.bar, layer, context }),
    attachAddress(view), attachLive(view), attachNotice(view, notice, context), attachCommands(view, tools, context)];
  return () => {
    for (const end of ends) end?.();
    view.destroy();
  };
}

function calendarTypes({ resource_types: types }) {
  const shown = (types ?? ["physical:host"]).filter((type) => !WITHOUT_ROWS.includes(type));
  const rank = (type) => (ORDER.includes(type) ? ORDER.indexOf(type) : ORDER.length);
  return shown.sort((a, b) => rank(a) - rank(b));
}

/** The required parameters that a unit of a type does not set, by type. */
async function loadNeeds() {
  const list = await get("/v2/resource-types").catch(() => []);
  const needs = {};
  for (const { name, unit, schema } of Array.isArray(list) ? list : list.resource_types ?? []) {
    const missing = (schema?.required ?? []).filter((key) => !(key in (unit ?? {})));
    if (missing.length) needs[name] = missing.map((key) => schema.properties?.[key]?.title ?? key);
  }
  return needs;
}

function toolbar(view, types, { me }) {
  const bar = h("div", { class: "calendar-need" });
  const [typeElement, updateTypes] = typeSwitch(view, types);
  const [zoomElement, updateZooms] = zoomSwitch(view);
  const [optionElements, updateOptions, open] = options(view, { types, mayAll: me.allowed["calendar:get_all"] });
  const update = () => { updateTypes(); updateZooms(); updateOptions(); };
  view.addEventListener("statechange", update);
  update();
  const element = h("div", { class: "calendar-bar" }, typeElement, bar,
    h("div", { class: "calendar-view-tools" }, zoomElement, dateButtons(view), optionElements));
  return { element, bar, open };
}

// The address follows at rest: browsers limit how often a page may change it.
function attachAddress(view) {
  const write = debounce(() => {
    history.replaceState(history.state, "", location.pathname + queryOf(view.state, location.search) + location.hash);
  }, 300);
  view.addEventListener("statechange", write);
  view.addEventListener("rest", write);
  return write.cancel;
}

function attachLive(view) {
  return onChange((changes) => {
    const windows = changes?.map(({ start, end }) => ({ start: Date.parse(start), end: Date.parse(end) }));
    if (windows) view.changed(windows);
    else view.refresh();
  });
}

function attachCommands(view, tools, { navigate }) {
  const act = {
    today: () => today(view), goto: () => tools.open("date"), filter: () => tools.open("name"), help: showKeys,
    new: () => navigate("/console/new"), leave: () => tools.bar.querySelector("input, button, select, a")?.focus(),
  };
  view.addEventListener("command", ({ detail }) => act[detail]());
  view.addEventListener("activate", (event) => {
    if (event.defaultPrevented || event.detail.area !== "row" || event.detail.heading) return;
    const { interval, row } = event.detail;
    if (interval?.lease && interval.lease.id) navigate(`/console/leases/${encodeURIComponent(interval.lease.id)}`);
    else if (interval) announce(`${row.name}: ${cellWords(interval)}, ${spanWords(interval.start, interval.end)}`);
  });
}

// Loading, empty and failing

function attachNotice(view, notice, context) {
  let late = 0;
  let shown = "";
  const update = () => {
    const state = noticeState(view);
    if (state !== "loading") clearTimeout(late);
    if (state === shown) return;
    shown = state;
    notice.replaceChildren();
    if (state === "loading") late = setTimeout(() => announce("The calendar is still loading."), 1000);
    if (state === "failed") notice.append(...failure(view));
    if (state.startsWith("empty")) showEmpty(view, notice, context);
  };
  view.data.addEventListener("data", update);
  view.addEventListener("statechange", update);
  update();
  return () => clearTimeout(late);
}

function noticeState({ data, state }) {
  if (data.total === null) return data.error ? "failed" : "loading";
  return data.total === 0 ? `empty ${JSON.stringify([state.resourceType, state.properties, state.q])}` : "ready";
}

function failure(view) {
  const { q, properties, groupBy } = view.state;
  const plainly = button("Without filter and groups", () => view.setState({ q: "", properties: null, groupBy: null }));
  const narrowed = q || properties || groupBy;
  return [h("p", { class: "strong" }, "The calendar could not be loaded."),
    h("p", {}, view.data.error.detail ?? String(view.data.error)),
    h("div", { class: "actions" }, button("Try again", () => view.data.retry()), narrowed ? plainly : null)];
}

function showEmpty(view, notice, { me }) {
  const { resourceType, properties, q } = view.state;
  const words = typeWords(resourceType);
  if (!properties && !q) {
    const register = link("/console/resources", "Register resources");
    notice.append(h("p", { class: "strong" }, `This cloud has no ${words.many} to reserve.`),
      me.allowed["resources:post"] ? register : h("p", {}, "An administrator can register them."));
    return;
  }
  const named = q ? ` with \u201c${plain(q)}\u201d in its name` : "";
  notice.append(h("p", { class: "strong" }, `No ${words.one}${named} matches the filter.`));
  const actions = h("div", { class: "actions" });
  if (q) actions.append(button("Clear the name", () => view.setState({ q: "" })));
  if (properties) actions.append(button("Clear the properties", () => view.setState({ properties: null })));
  notice.append(actions);
  if (properties && !q) suggest(view, notice);
}

/** How many resources match without each of the conditions, as buttons. */
async function suggest(view, notice) {
  const { properties, resourceType } = view.state;
  if (properties[0] !== "and" || properties.length > 7) return;
  const { filterText } = await import("../reserve/filter.js");
  const now = serverNow();
  const end = new Date(now.getTime() + 3_600_000);
  const span = { start: iso(now), end: iso(end), limit: 1, resource_type: resourceType };
  for (const term of properties.slice(1)) {
    const others = properties.slice(1).filter((other) => other !== term);
    const rest = others.length > 1 ? ["and", ...others] : others[0];
    const path = `/v2/calendar${query({ ...span, properties: JSON.stringify(rest) })}`;
    const { total } = await get(path).catch(() => ({ total: 0 }));
    if (view.state.properties !== properties) return;
    const use = () => view.setState({ properties: rest });
    if (total) notice.append(button(`Without ${filterText(term)}: ${total}`, use));
  }
}
