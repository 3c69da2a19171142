// Resources: the list, one resource, and their properties in words.

import { get, keepFocus, keepFresh, query } from "../api.js";
import { button, debounce, field, h, icon, link, loading, name, plain, replace } from "../dom.js";
import { propertiesOf } from "../lease/fields.js";
import { typeTitle } from "../lease/words.js";
import { bookingsOf, weekChart, WEEKS } from "../tables/charts.js";
import { filterText, parseFilter, PropertiesField } from "../tables/properties.js";
import {
  ago, count, facts, leaseLink, PagedTable, plainTable, plural, rememberParams, resourceLink, STATE_CHOICES, stateKey,
  stateOf, typesWithResources, when,
} from "../tables/table.js";
import { duration, iso, midnight, moment, serverNow } from "../time.js";
import { returnToService, may, setAsideDialog, registerDialog, removeResources } from "./operators.js";
import { feedDialog } from "./subscriptions.js";

const TYPING = 250; // ms at rest before the list is asked for

export async function mount(element, context) {
  context.title("Resources");
  const page = new ResourcesPage(context);
  replace(element, page.element);
  page.table.load();
  const stop = keepFresh(() => page.table.refresh(), 15);
  return () => {
    stop();
    page.table.stop();
    page.searchLater.cancel();
  };
}

class ResourcesPage {
  constructor({ me, params, navigate }) {
    this.me = me;
    this.types = typesWithResources(me);
    this.type = this.types.includes(params.get("type")) ? params.get("type") : this.types[0];
    this.sees = may(me, "resources:get_bookings");
    this.search = h("input", { type: "search", id: "resource-search", value: params.get("q") || "", maxlength: 255,
      spellcheck: "false" });
    this.state = h("select", { id: "resource-state" }, h("option", { value: "" }, "Any"),
      STATE_CHOICES.map(([value, words]) => h("option", { value, selected: value === params.get("state") }, words)));
    this.properties = new PropertiesField({ expression: safely(params.get("properties")),
      changed: () => this.filtered(), suggest: () => this.suggestions() });
    this.searchLater = debounce(() => this.filtered(), TYPING);
    this.search.addEventListener("input", this.searchLater);
    this.state.addEventListener("change", () => this.filtered());
    this.table = this.makeTable(params);
    this.bar = h("div", { class: "selection-bar", hidden: true, role: "group", "aria-label": "Selected resources" });
    this.navigate = navigate;
    this.element = this.draw();
  }

  draw() {
    const tabs = h("nav", { class: "segments", "aria-label": "Types" }, this.types.map((type) =>
      link(`/console/resources${query({ type })}`, typeTitle(type),
        { "aria-current": type === this.type ? "page" : null, dataset: { type } })));
    return h("div", { class: "page" },
      h("div", { class: "title" }, h("h1", { class: "grow" }, "Resources"),
        h("div", { class: "actions" }, this.actions())),
      this.types.length > 1 ? tabs : null,
      h("div", { class: "filters", role: "search" }, field("Name contains", this.search), field("State", this.state),
        this.properties.element, this.properties.opener),
      this.properties.adder,
      h("section", { class: "card flush", "aria-label": typeTitle(this.type) }, this.bar, this.table.element));
  }

  actions() {
    if (!may(this.me, "resources:post")) return null;
    return button([icon("plus"), "Register"],
      () => registerDialog({ types: this.types, chosen: this.type, titleOf: typeTitle },
      () => this.table.load({ first: true })), { id: "register" });
  }

  makeTable(params) {
    const selectable = may(this.me, "readiness:put") || may(this.me, "resources:delete");
    return new PagedTable({
      caption: typeTitle(this.type), path: "/v2/resources", list: "resources", sort: params.get("sort") || "name",
      marker: params.get("marker"),
      columns: this.columns(), filter: () => this.filter(), empty: () => this.nothing(), title: selectable
        ? (item) => item.name : null,
      selected: () => this.drawBar(),
      moved: ({ marker, sort }) => rememberParams({ marker, sort: sort === "name" ? null : sort }),
      refused: (error) => this.refused(error),
    });
  }

  columns() {
    const who = [
      { label: "Now", cell: (item) => booking(item.now, "until", "end"), class: "who-has" },
      { label: "Next", cell: (item) => booking(item.next, "from", "start"), class: "who-has" },
    ];
    return [
      { label: "Name", sort: "name", header: true, cell: (item) => resourceLink(item.id, item.name) },
      { label: "State", cell: stateOf, class: "nowrap" },
      { label: "Properties", cell: (item) => shortProperties(item.properties) },
      ...(this.sees ? who : []),
    ];
  }

  filter() {
    const { expression } = this.properties;
    return {
      resource_type: this.type, q: this.search.value.trim(), state: this.state.value,
      properties: expression ? JSON.stringify(expression) : "", bookings: this.sees ? "true" : "",
    };
  }

  filtered() {
    const { expression } = this.properties;
    rememberParams({ q: this.search.value.trim(), state: this.state.value, properties: filterText(expression),
      marker: null });
    this.table.clearSelection();
    this.table.load({ first: true });
  }

  refused(error) {
    const own = ((error.body && error.body.errors) || []).find((item) => item.parameter === "properties");
    if (!own && error.code !== "invalid_query") return false;
    this.properties.fail(own ? own.detail : error.detail);
    return true;
  }

  async suggestions() {
    try {
      return await propertiesOf(this.type);
    } catch {
      return seenProperties(this.table.items || []);
    }
  }

  nothing() {
    const words = [];
    const { expression } = this.properties;
    if (this.search.value.trim()) words.push(["has ", name(this.search.value.trim()), " in its name"]);
    if (this.state.value) words.push([`is in the state "${this.state.selectedOptions[0].textContent}"`]);
    if (expression) words.push(["matches ", name(filterText(expression))]);
    if (words.length) {
      return [h("p", {}, "None of the ", typeTitle(this.type).toLowerCase(), " ",
        words.map((part, at) => [at ? " and " : "", part]), "."), button("Clear the filters", () => this.clear())];
    }
    const hint = may(this.me, "resources:post") ? "Register what the cloud has, so that projects can reserve it."
      : "Ask an operator of the cloud to register some.";
    return [h("p", { class: "strong" }, `No ${typeTitle(this.type).toLowerCase()} are registered.`), h("p", {}, hint)];
  }

  clear() {
    this.search.value = this.state.value = "";
    this.properties.set(null);
    this.filtered();
    this.search.focus();
  }

  drawBar() {
    if (!this.bar) return;
    const chosen = [...this.table.selection.values()];
    this.bar.hidden = !chosen.length;
    const print = chosen.map((item) => item.id + stateKey(item)).join();
    if (print === this.bar.print) return;
    this.bar.print = print;
    const done = () => { this.table.clearSelection(); this.table.refresh(); };
    const aside = chosen.filter((item) => stateKey(item) === "set_aside");
    const inService = chosen.filter((item) => stateKey(item) !== "set_aside");
    const host = this.type === "physical:host" && may(this.me, "readiness:put");
    replace(this.bar, h("span", { class: "strong" }, `${plural(chosen.length, "resource")} selected`),
      host && inService.length ? button("Set aside", () => setAsideDialog(inService, done)) : null,
      host && aside.length ? button("Return to service", () => returnToService(aside, done)) : null,
      may(this.me, "resources:delete") ? button("Remove", () => removeResources(chosen, done), { kind: "danger" })
        : null,
      button("Clear the selection", () => { this.table.clearSelection(); this.search.focus(); }, { kind: "quiet" }));
  }
}

function booking(held, word, edge) {
  if (!held) return h("span", { class: "quiet" }, "free");
  return h("span", {}, leaseLink(held.lease_id, held.lease_name, word), " ",
    h("small", { class: "quiet nowrap" }, `${word} ${moment(new Date(held[edge]))}`));
}

function safely(text) {
  try {
    return parseFilter(text || "");
  } catch {
    return null;
  }
}

// One resource

export async function mountResource(element, context) {
  context.title("Resource");
  const page = new ResourcePage(context);
  replace(element, page.element);
  let stop = null;
  const worked = await loading(page.element, () => page.load().catch((error) => notFound(error, context)),
    "the resource");
  if (worked) stop = keepFresh(() => page.refresh(), 15);
  return () => stop && stop();
}

function notFound(error, { title }) {
  if (error.status !== 404) throw error;
  title("Resource not found");
  return [h("h1", {}, "Resource not found"), h("p", {}, "There is no such resource."),
    h("p", {}, link("/console/resources", "Show the resources"))];
}

class ResourcePage {
  constructor(context) {
    this.context = context;
    this.me = context.me;
    this.path = `/v2/resources/${encodeURIComponent(context.id)}`;
    this.element = h("div", { class: "page" });
  }

  async load() {
    const resource = await get(this.path);
    this.resource = resource;
    this.context.title(plain(resource.name));
    const [readiness, booked] = await Promise.allSettled([this.readiness(resource), this.bookings(resource)]);
    this.prints = JSON.stringify([resource, readiness.value, booked.value]);
    return this.draw(resource, readiness.value, booked.status === "fulfilled" ? booked.value : booked.reason);
  }

  async refresh() {
    const before = this.prints;
    const content = await this.load();
    if (before === this.prints) return;
    keepFocus(this.element, () => replace(this.element, content));
  }

  async readiness(resource) {
    if (resource.resource_type !== "physical:host" || !may(this.me, "readiness:get")) return null;
    return get(`${this.path}/readiness`);
  }

  async bookings(resource) {
    const start = midnight(serverNow());
    const end = midnight(start, 7 * WEEKS);
    return { start, end, bookings: await bookingsOf(resource, start, end,
      { names: may(this.me, "resources:get_bookings"), project: this.me.project.id }) };
  }

  draw(resource, readiness, booked) {
    const { name: label, resource_type: type } = resource;
    return [
      h("nav", { class: "crumbs", "aria-label": "Path" }, link(`/console/resources${query({ type })}`, "Resources"),
        " / ", name(label)),
      h("div", { class: "title" }, h("h1", {}, name(label)), h("span", { class: "badge" }, stateOf(resource)),
        h("span", { class: "grow" }), h("div", { class: "actions" }, this.actions(resource))),
      this.aside(readiness),
      h("div", { class: "columns" },
        h("div", {}, this.weeks(booked)),
        h("div", {}, this.stateCard(resource, readiness), this.propertiesCard(resource))),
    ];
  }

  actions(resource) {
    const again = () => this.refresh();
    const calendar = `/console/${query({ type: resource.resource_type, q: resource.name })}`;
    const host = resource.resource_type === "physical:host" && may(this.me, "readiness:put");
    const aside = stateKey(resource) === "set_aside";
    return [
      link(calendar, [icon("calendar"), "Calendar"], { class: "button", dataset: { focus: "calendar" } }),
      may(this.me, "feeds:post")
        ? button("Create feed", () => feedDialog(this.me, { scope: "resource", id: resource.id, label: resource.name }),
          { "data-focus": "feed" }) : null,
      host && !aside ? button("Set aside", () => setAsideDialog([resource], again), { "data-focus": "set-aside" })
        : null,
      host && aside ? button("Return to service", () => returnToService([resource], again),
        { kind: "primary", "data-focus": "set-aside" }) : null,
      may(this.me, "resources:delete") ? button("Remove", () => removeResources([resource],
        () => this.context.navigate(`/console/resources${query({ type: resource.resource_type })}`)),
          { kind: "danger", "data-focus": "remove" }) : null,
    ];
  }

  aside(readiness) {
    if (!readiness || !readiness.set_aside) return null;
    return h("div", { class: "note care" }, icon("warning"),
      h("div", {}, h("p", {}, h("b", {}, "Set aside. "), name(readiness.set_aside)),
      h("p", { class: "hint" }, "Since ", when(readiness.set_aside_at))));
  }

  weeks(booked) {
    const heading = h("h2", { id: "weeks" }, "The next four weeks");
    if (booked instanceof Error) return h("section", { class: "card", "aria-labelledby": "weeks" }, heading,
      h("p", { class: "quiet" }, booked.detail || "The bookings could not be loaded."));
    const { start, bookings } = booked;
    const list = bookings.length ? this.bookingTable(bookings)
      : h("p", { class: "quiet" }, "It has no bookings. ", may(this.me, "leases:post")
        ? link(`/console/${query({ type: this.resource.resource_type, q: this.resource.name })}`,
          "Reserve it in the calendar") : null);
    return [h("section", { class: "card", "aria-labelledby": "weeks" }, heading, weekChart(start, bookings)),
      h("section", { class: "card", "aria-labelledby": "bookings" }, h("h2", { id: "bookings" }, "Bookings"), list)];
  }

  bookingTable(bookings) {
    const named = bookings.some((item) => item.project_id);
    const columns = [
      { label: "Booking", header: true, cell: (item) => (item.lease_id ? leaseLink(item.lease_id, item.lease_name)
        : item.words) },
      { label: "Start", cell: (item) => when(iso(item.start)) },
      { label: "End", cell: (item) => when(iso(item.end)) },
      ...(named ? [{ label: "Project", cell: (item) => name(item.project_id || "") }] : []),
    ];
    return plainTable({ caption: "Bookings of the next four weeks", columns, items: bookings,
      key: (item) => `${item.lease_id || item.kind}-${iso(item.start)}` });
  }

  stateCard(resource, readiness) {
    const power = resource.power || {};
    const up = readiness && readiness.up !== undefined && readiness.up !== null ? readiness.up : power.up;
    const seen = (readiness && readiness.seen_at) || power.seen_at;
    return h("section", { class: "card", "aria-labelledby": "facts" }, h("h2", { id: "facts" }, "State"), facts([
      ["State", stateOf(resource)],
      ["Power", up === undefined || up === null ? null : powerWords(up, seen)],
      ["Off since", power.off_at ? when(power.off_at) : null],
      ["Ready at", power.ready_at || (readiness && readiness.ready_at) ? when(power.ready_at || readiness.ready_at)
        : null],
      ["Needed at", power.needed_at ? when(power.needed_at) : null],
      ["Lead time", readiness && readiness.lead ? leadTime(readiness.lead) : null],
      ["Last times", readiness && readiness.times && readiness.times.length
        ? readiness.times.slice(-6).map((item) => duration(item)).join(", ") : null],
      ["Class", readiness && name(readiness.hardware)],
      ["Type", typeTitle(resource.resource_type)],
      ["Id", h("span", { class: "mono" }, resource.id)],
      ["Registered", when(resource.created_at)],
    ]));
  }

  propertiesCard(resource) {
    const pairs = allProperties(resource.properties);
    return h("section", { class: "card", "aria-labelledby": "properties" }, h("h2", { id: "properties" }, "Properties"),
      pairs.length ? facts(pairs) : h("p", { class: "quiet" }, "It has no properties."));
  }
}

function powerWords(up, seen) {
  return h("span", {}, up ? "The cloud reports that it is up" : "The cloud reports that it is down",
    seen ? [h("br"), h("small", { class: "quiet" }, `heard ${ago(seen)}`)] : null);
}

function leadTime({ seconds, usual, allowance, own_times: own, class_times: all }) {
  return h("span", {}, h("b", {}, duration(seconds)), " before a lease", h("br"),
    h("small", { class: "quiet" }, `usually ${duration(usual)}, times ${count(allowance, 2)} for safety; `,
      `from ${plural(own, "time")} of this host and ${count(all)} of its class`));
}

// Properties of resources

const AMOUNTS = {
  vcpus: (value) => `${count(Number(value))} vCPUs`,
  memory_mb: (value) => `${count(value / 1024)} GiB memory`,
  local_gb: (value) => `${count(Number(value))} GB disk`,
  gigabytes: (value) => `${count(Number(value))} GB`,
};
const LABELS = { vcpus: "vCPUs", memory_mb: "Memory, MiB", local_gb: "Disk, GB" };
// Nova reports these for every host; they tell few hosts apart, so lists leave them out.
const COMMON = new RegExp("^(id|cpu_info|service_name|hypervisor_hostname|hypervisor_version|hypervisor_type"
  + "|availability_zone|trait:.*|resources:.*|free_.*|current_workload|running_vms|status)$");

function distinctive(properties) {
  const all = Object.entries(properties).filter(([key]) => !COMMON.test(key));
  return [...all.filter(([key]) => !AMOUNTS[key]), ...all.filter(([key]) => AMOUNTS[key])];
}

/** The first properties of a resource in one line. */
export function shortProperties(properties, most = 4) {
  const all = distinctive(properties);
  const parts = all.slice(0, most).map(([key, value]) => h("span", { class: "property" },
    AMOUNTS[key] && Number.isFinite(Number(value)) ? AMOUNTS[key](value)
      : [h("span", { class: "quiet" }, name(key), " "), name(value)]));
  const rest = all.length - most;
  return h("span", { class: "properties" }, parts, rest > 0 ? h("span", { class: "quiet" }, `and ${rest} more`) : null);
}

/** All properties as `[label, content]`. */
function allProperties(properties) {
  const known = distinctive(properties);
  const rest = Object.entries(properties).filter(([key]) => COMMON.test(key));
  return [...known, ...rest].map(([key, value]) => [LABELS[key] || name(key), longValue(value)]);
}

function longValue(value) {
  const text = plain(value);
  return text.length > 160 ? h("details", {}, h("summary", {}, name(`${text.slice(0, 60)}...`)), h("p", {}, name(text)))
    : name(text);
}

/** The values that properties have among `resources`: suggestions where the API has no list of them. */
function seenProperties(resources) {
  const found = new Map();
  for (const { properties } of resources) {
    for (const [key, value] of Object.entries(properties)) {
      if (String(value).length > 60) continue;
      if (!found.has(key)) found.set(key, new Set());
      found.get(key).add(value);
    }
  }
  return [...found].map(([key, values]) => ({ name: key, values: [...values].sort() })).sort((a, b) =>
    a.name.localeCompare(b.name));
}
