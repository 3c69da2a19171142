// The page of the calendar: tool bar, chart, legend, details for a click, touch.

import { get, liveState, onChange, query } from "../api.js";
import { announce, button, debounce, dialog, field, h, icon, link, plain, s } from "../dom.js";
import { typeWords } from "../lease/words.js";
import { Reserve } from "../reserve/controller.js";
import { clockSeconds, fromInput, iso, serverNow, toInput } from "../time.js";
import { cellWords, defaultFrom, queryOf, spanWords, stateOf, ZOOMS } from "./scale.js";
import { CalendarView } from "./view.js";

const WITHOUT_ROWS = ["virtual:stack"];
const CORNERS = [1, 2, 3, 4]; // of the box, see calendar.css
const ORDER = [
  "physical:host", "virtual:instance", "virtual:volume", "virtual:network", "virtual:floatingip", "flavor:instance",
];

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
  const { filterText } = await import("../tables/properties.js");
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

// The toolbar of the calendar

const FIRST = 2; // types that have a button of their own on narrower screens

function typeSwitch(view, types) {
  const choose = (resourceType) => view.setState({ resourceType, properties: null, groupBy: null, q: "" });
  const buttons = types.map((type, index) => h("button", {
    type: "button", class: index < FIRST ? null : "extra", dataset: { type }, onclick: () => choose(type),
  }, typeWords(type).title));
  const extras = types.slice(FIRST);
  const more = h("select", { class: "more", "aria-label": "More types of resources" },
    h("option", { value: "" }, "More"), extras.map((type) => h("option", { value: type }, typeWords(type).title)));
  more.addEventListener("change", () => more.value && choose(more.value));
  const element = h("div", { class: "segments calendar-types", role: "group", "aria-label": "Type of resources" },
    buttons, extras.length ? more : null);
  return [element, () => {
    press(buttons, (one) => one.dataset.type === view.state.resourceType);
    more.value = extras.includes(view.state.resourceType) ? view.state.resourceType : "";
    more.classList.toggle("pressed", more.value !== "");
  }];
}

function press(buttons, test) {
  for (const one of buttons) one.setAttribute("aria-pressed", String(test(one)));
}

function zoomSwitch(view) {
  const buttons = ZOOMS.map((zoom) => h("button", {
    type: "button", dataset: { zoom }, onclick: () => zoomAroundNow(view, zoom),
  }, zoom[0].toUpperCase() + zoom.slice(1)));
  const element = h("div", { class: "segments calendar-zooms", role: "group", "aria-label": "Span of time" }, buttons);
  return [element, () => press(buttons, (one) => one.dataset.zoom === view.state.zoom)];
}

// Now keeps its place if it is in sight, else the left edge does: that is what people look at.
function zoomAroundNow(view, zoom) {
  const now = serverNow().getTime();
  const seen = now > view.from && now < view.to;
  view.zoomTo(zoom, view.xOf(seen ? now : view.from));
}

function dateButtons(view) {
  const move = (step) => view.goTo(view.from + step * 0.8 * (view.to - view.from));
  return h("div", { class: "calendar-dates" },
    button(icon("left"), () => move(-1), { kind: "square", "aria-label": "Earlier" }),
    button("Today", () => today(view)),
    button(icon("right"), () => move(1), { kind: "square", "aria-label": "Later" }));
}

function today(view) {
  view.goTo(defaultFrom(view.state.zoom));
}

function options(view, { types, mayAll }) {
  const name = h("input", { type: "search", value: view.state.q, maxlength: 255, autocomplete: "off" });
  name.addEventListener("input", debounce(() => view.setState({ q: name.value.trim() }), 250));
  const group = h("select", {}, h("option", { value: "" }, "No groups"));
  group.addEventListener("change", () => view.setState({ groupBy: group.value || null, folded: new Set() }));
  const density = h("select", { onchange: () => view.setState({ density: density.value }) },
    h("option", { value: "rows" }, "Rows with names"), h("option", { value: "overview" }, "Overview: 2 px a row"));
  const date = h("input", { type: "datetime-local" });
  date.addEventListener("change", () => goTo(view, date.value));
  const whose = h("select", { onchange: () => view.setState({ whose: whose.value || null }) },
    h("option", { value: "" }, "Of my project"), h("option", { value: "all" }, "Of all projects"));
  const type = h("select", {}, types.map((value) => h("option", { value }, typeWords(value).title)));
  type.addEventListener("change", () => view.setState({ resourceType: type.value, properties: null, groupBy: null }));
  const fields = { name, group, date, density };
  const label = { "aria-label": "Filter and view" };
  const dialog = { id: "calendar-options", popover: "auto", role: "dialog", ...label };
  const panel = h("div", { class: "menu calendar-options", ...dialog },
    h("div", { class: "narrow" }, field("Type of resources", type)),
    field("Name contains", name), field("Group by", group), field("Go to", date), field("Rows", density),
    mayAll ? field("Names of leases", whose) : null,
    button("Close", () => panel.hidePopover()));
  const opener = button(icon("search"), null, { kind: "square", popovertarget: panel.id, ...label });
  panel.addEventListener("toggle", (event) => {
    if (event.newState !== "open") return;
    const { bottom, right } = opener.getBoundingClientRect();
    panel.style.top = `${Math.min(bottom + 6, innerHeight - panel.offsetHeight - 8)}px`;
    panel.style.left = `${Math.max(8, right - panel.offsetWidth)}px`;
    date.value = toInput(new Date(view.from));
    loadProperties(view, group);
  });
  const update = () => {
    const { q, groupBy, whose: whom, density: dense, resourceType } = view.state;
    if (document.activeElement !== name) name.value = q;
    selectGroup(group, groupBy);
    Object.assign(density, { value: dense });
    Object.assign(whose, { value: whom ?? "" });
    Object.assign(type, { value: resourceType });
    opener.classList.toggle("active", Boolean(q || groupBy || whom));
  };
  const open = (key) => {
    panel.showPopover();
    fields[key].focus();
  };
  return [[opener, panel], update, open];
}

function goTo(view, text) {
  const parsed = fromInput(text);
  const time = parsed instanceof Date ? parsed : parsed?.date ?? null;
  if (time) view.goTo(time.getTime());
}

function selectGroup(select, name) {
  const known = [...select.options].some(({ value }) => value === name);
  if (name && !known) select.append(h("option", { value: name }, name));
  select.value = name ?? "";
}

// The properties of the first resources stand for all.
async function loadProperties(view, select) {
  const { resourceType, groupBy } = view.state;
  if (select.dataset.type === resourceType) return;
  select.dataset.type = resourceType;
  try {
    const { resources } = await get(`/v2/resources${query({ resource_type: resourceType, limit: 20 })}`);
    const names = new Set(resources.flatMap(({ properties }) => Object.keys(properties ?? {})));
    names.delete("id"); // Each resource would be a group.
    const listed = [...names].sort().map((key) => h("option", { value: key }, key));
    select.replaceChildren(h("option", { value: "" }, "No groups"), ...listed);
  } catch {
    delete select.dataset.type;
  }
  selectGroup(select, groupBy);
}

// Below the calendar

const SHAPES = [
  ["own", "Yours, running"], ["later", "Yours, later"], ["taken", "Taken"], ["cleaning", "Cleaning"],
  ["preparing", "Getting ready"], ["closed", "Not bookable"], ["held", "Held"],
];

function legend() {
  const live = h("span", { class: "calendar-live" });
  const show = () => showLive(live);
  document.addEventListener("live", show);
  show();
  const keys = button([h("kbd", {}, "?"), "keys"], showKeys, { kind: "quiet calendar-keys" });
  const element = h("div", { class: "calendar-legend" },
    h("ul", { "aria-label": "Legend" }, SHAPES.map(([shape, words]) => h("li", {}, swatch(shape), words))),
    h("div", { class: "calendar-status" }, live, keys));
  return [element, () => document.removeEventListener("live", show)];
}

function swatch(shape) {
  return h("span", { class: `swatch swatch-${shape}`, "aria-hidden": "true" });
}

function showLive(element) {
  const { ok, at } = liveState();
  const words = at ? clockSeconds(at) : "";
  const circle = s("circle", { cx: 5, cy: 5, r: 3.5 });
  const dot = s("svg", { viewBox: "0 0 10 10", class: ok ? "dot" : "dot stale", "aria-hidden": "true" }, circle);
  element.replaceChildren(dot, ok ? `Live, ${words}` : at ? `Not live, last at ${words}` : "Not live");
}

const KEYS = [
  ["Left, Right", "previous, next interval; free ones too"],
  ["Up, Down", "previous, next row; the topmost is the free capacity"],
  ["Page Up, Page Down", "a screen of rows"],
  ["Home, End", "first, last interval in sight"],
  ["Ctrl+Home, Ctrl+End", "first, last row"],
  ["Enter, Space", "free: select the duration you need; yours: open; taken: what is known; group: fold"],
  ["Shift+Left, Shift+Right", "begin a selection and move its end"],
  ["Alt+Shift+Left, Alt+Shift+Right", "move the start of the selection"],
  ["With a selection: Left, Right", "move it; with Ctrl by a day"],
  ["With a selection: + and \u2212", "one more, one fewer"],
  ["With a selection: Enter", "check it and open the card"],
  ["A, B, C", "take that alternative"],
  ["M, E", "yours: move, change the end"],
  ["Delete", "yours: end or delete; selection: discard"],
  ["Esc", "discard the selection; leave the calendar"],
  ["+ and \u2212", "zoom"],
  ["T, G, F, N", "today; go to a date; filter; new lease as a form"],
  ["?", "these keys"],
];

function showKeys() {
  dialog({
    title: "Keys of the calendar", wide: true,
    content: [h("p", { class: "quiet" }, "They work while the calendar has the focus."),
      h("dl", { class: "pairs calendar-keylist" }, KEYS.map(([key, what]) => [h("dt", {}, key), h("dd", {}, what)]))],
  });
}

// Zooming by pinch and by the wheel with Ctrl.

function attachTouch(view) {
  const { element } = view;
  const ends = new AbortController();
  const listen = { passive: false, signal: ends.signal };
  let pinch = null;
  const begin = (event) => {
    pinch = event.touches.length === 2 && { ...fingers(event), scale: view.scale };
    if (pinch) event.preventDefault();
  };
  const move = (event) => {
    if (!pinch || event.touches.length !== 2) return;
    event.preventDefault();
    const { distance, middle } = fingers(event);
    view.setScale((pinch.scale * distance) / pinch.distance, middle);
  };
  element.addEventListener("touchstart", begin, listen);
  element.addEventListener("touchmove", move, listen);
  const end = () => { pinch = null; };
  for (const name of ["touchend", "touchcancel"]) element.addEventListener(name, end, { signal: ends.signal });
  element.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const step = event.deltaMode === 1 ? event.deltaY * 20 : event.deltaY;
    view.setScale(view.scale * Math.exp(-step / 400), event.clientX);
  }, listen);
  return () => ends.abort();
}

function fingers({ touches: [one, other] }) {
  return { distance: Math.max(20, Math.abs(one.clientX - other.clientX)), middle: (one.clientX + other.clientX) / 2 };
}

// Reserving in the calendar

function attachReserve(view, { bar, layer, context }) {
  const reserve = new Reserve(view, { bar, layer, context });
  return () => reserve.detach();
}
