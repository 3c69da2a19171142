// The toolbar of the calendar: type of resources, zoom, dates, and the options of the view.

import { get, query } from "../api.js";
import { button, debounce, h, icon } from "../dom.js";
import { field } from "../forms.js";
import { fromInput, serverNow, toInput } from "../time.js";
import { defaultFrom } from "./address.js";
import { ZOOMS } from "./scale.js";
import { typeWords } from "./words.js";

const FIRST = 2; // types that have a button of their own on narrower screens

/** Buttons and a list for the types of resources. */
export function typeSwitch(view, types) {
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

/** Buttons for the zoom levels. */
export function zoomSwitch(view) {
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

/** Buttons for earlier, today and later. */
export function dateButtons(view) {
  const move = (step) => view.goTo(view.from + step * 0.8 * (view.to - view.from));
  return h("div", { class: "calendar-dates" },
    button(icon("left"), () => move(-1), { kind: "square", "aria-label": "Earlier" }),
    button("Today", () => today(view)),
    button(icon("right"), () => move(1), { kind: "square", "aria-label": "Later" }));
}

/** Show now. */
export function today(view) {
  view.goTo(defaultFrom(view.state.zoom));
}

/**
 * The button and the panel for filter by name, grouping, density, date and type.
 * @returns {[Node[], function(): void, function(string): void]} elements, update, and open with the focus on a field
 */
export function options(view, { types, mayAll }) {
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
