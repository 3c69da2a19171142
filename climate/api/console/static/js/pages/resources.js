// All resources: by type, name, state and properties. Operators see who has them, and change them.

import { query } from "../api.js";
import { button, debounce, h, icon, link, name, replace } from "../dom.js";
import { field } from "../forms.js";
import { typeTitle } from "../lease/words.js";
import { propertiesOf } from "../request/reservation.js";
import { moment } from "../time.js";
import { endQuarantine, may, quarantineDialog, registerDialog, removeResources } from "../tables/actions.js";
import { leaseLink, plural, resourceLink, STATE_CHOICES, stateKey, stateOf } from "../tables/cells.js";
import { expressionText, parseExpression } from "../tables/expression.js";
import { PropertiesField, seenProperties, shortProperties } from "../tables/properties.js";
import { keepFresh } from "../tables/refresh.js";
import { PagedTable, rememberParams } from "../tables/table.js";
import { typesWithResources } from "../tables/types.js";

const TYPING = 250; // ms at rest before the list is asked for

/** Show the resources. */
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
    rememberParams({ q: this.search.value.trim(), state: this.state.value, properties: expressionText(expression),
      marker: null });
    this.table.clearSelection();
    this.table.load({ first: true });
  }

  /** A refusal of the expression is shown beside it. */
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
    if (expression) words.push(["matches ", name(expressionText(expression))]);
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
      host && inService.length ? button("Quarantine", () => quarantineDialog(inService, done)) : null,
      host && aside.length ? button("End quarantine", () => endQuarantine(aside, done)) : null,
      may(this.me, "resources:delete") ? button("Remove", () => removeResources(chosen, done), { kind: "danger" })
        : null,
      button("Clear the selection", () => { this.table.clearSelection(); this.search.focus(); }, { kind: "quiet" }));
  }
}

function booking(held, word, edge) {
  if (!held) return h("span", { class: "quiet" }, "nobody");
  return h("span", {}, leaseLink(held.lease_id, held.lease_name, word), " ",
    h("small", { class: "quiet nowrap" }, `${word} ${moment(new Date(held[edge]))}`));
}

function safely(text) {
  try {
    return parseExpression(text || "");
  } catch {
    return null;
  }
}
