// One resource: its state, what it has, and its next four weeks.

import { get, query } from "../api.js";
import { button, h, icon, link, name, plain, replace } from "../dom.js";
import { loading } from "../forms.js";
import { typeTitle } from "../lease/words.js";
import { duration, iso, midnight, serverNow } from "../time.js";
import { endQuarantine, may, quarantineDialog, removeResources } from "../tables/actions.js";
import { ago, count, facts, leaseLink, plural, stateKey, stateOf, when } from "../tables/cells.js";
import { feedDialog } from "../tables/feed_dialog.js";
import { allProperties } from "../tables/properties.js";
import { keepFocus, keepFresh } from "../tables/refresh.js";
import { plainTable } from "../tables/table.js";
import { bookingsOf, WEEKS, weekChart } from "../tables/weeks.js";

/** Show the resource `context.id`. */
export async function mount(element, context) {
  context.title("Resource");
  const page = new ResourcePage(context);
  replace(element, page.element);
  let stop = null;
  const worked = await loading(page.element, () => page.load(), "the resource");
  if (worked) stop = keepFresh(() => page.refresh(), 15);
  return () => stop && stop();
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

  /** Bookings of the next four weeks; operators see whose they are. */
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
      host && !aside ? button("Quarantine", () => quarantineDialog([resource], again), { "data-focus": "quarantine" })
        : null,
      host && aside ? button("End quarantine", () => endQuarantine([resource], again),
        { kind: "primary", "data-focus": "quarantine" }) : null,
      may(this.me, "resources:delete") ? button("Remove", () => removeResources([resource],
        () => this.context.navigate(`/console/resources${query({ type: resource.resource_type })}`)),
          { kind: "danger", "data-focus": "remove" }) : null,
    ];
  }

  aside(readiness) {
    if (!readiness || !readiness.set_aside) return null;
    return h("div", { class: "note care" }, icon("warning"),
      h("div", {}, h("p", {}, h("b", {}, "In quarantine. "), name(readiness.set_aside)),
      h("p", { class: "hint" }, "Since ", when(readiness.set_aside_at))));
  }

  weeks(booked) {
    const heading = h("h2", { id: "weeks" }, "The next four weeks");
    if (booked instanceof Error) return h("section", { class: "card", "aria-labelledby": "weeks" }, heading,
      h("p", { class: "quiet" }, booked.detail || "The bookings could not be loaded."));
    const { start, bookings } = booked;
    const list = bookings.length ? this.bookingTable(bookings)
      : h("p", { class: "quiet" }, "Nobody has booked it. ", may(this.me, "leases:post")
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
