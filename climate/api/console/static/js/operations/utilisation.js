// Utilisation in time, as a heat map that is a table.

import { get, query } from "../api.js";
import { h, name, plain, replace } from "../dom.js";
import { field, loading } from "../forms.js";
import { typeTitle } from "../lease/words.js";
import { propertiesOf } from "../request/reservation.js";
import { clock, day, fields, iso, midnight, serverNow } from "../time.js";
import { count } from "../tables/cells.js";
import { rememberParams } from "../tables/table.js";
import { typesWithResources } from "../tables/types.js";

const BY = [["type", "Type"], ["project", "Project"], ["property", "Property"]];
// [key, label, days back, days ahead, period]
const SPANS = [
  ["past7", "Last 7 days", 7, 0, "hour"], ["past30", "Last 30 days", 30, 0, "day"],
  ["past90", "Last 90 days", 90, 0, "day"],
  ["next7", "Next 7 days", 0, 7, "hour"], ["next30", "Next 30 days", 0, 30, "day"],
  ["around", "30 days back and ahead", 30, 30, "day"], ["year", "Last year", 364, 0, "week"],
];
const LEVELS = 5;

/** Show the tab. */
export async function show(element, { me, params }) {
  const map = new HeatMap(me, params);
  replace(element, map.element);
  await map.load();
  return () => {};
}

class HeatMap {
  constructor(me, params) {
    const select = (id, choices, chosen) => {
      const control = h("select", { id },
        choices.map(([value, words]) => h("option", { value, selected: value === chosen }, words)));
      control.addEventListener("change", () => this.load());
      return control;
    };
    this.type = select("heat-type", typesWithResources(me).map((type) => [type, typeTitle(type)]), params.get("type"));
    this.by = select("heat-by", BY, params.get("by") || "type");
    this.span = select("heat-span", SPANS, params.get("span") || "past30");
    this.property = h("input", { id: "heat-property", list: "heat-properties", value: params.get("property") || "",
      autocapitalize: "off", spellcheck: "false" });
    this.property.addEventListener("change", () => this.load());
    this.names = h("datalist", { id: "heat-properties" });
    this.propertyField = field("Property", this.property);
    this.numbers = h("input", { type: "checkbox", id: "heat-numbers" });
    this.numbers.addEventListener("change", () => this.content.classList.toggle("with-numbers", this.numbers.checked));
    this.content = h("div", { class: "heat-content" });
    this.element = h("section", { class: "card", "aria-labelledby": "heat" }, h("h2", { id: "heat" }, "Utilisation"),
      h("div", { class: "filters" }, field("Resources", this.type), field("By", this.by), this.propertyField,
        field("Period", this.span),
        h("div", { class: "check" }, this.numbers, h("label", { for: "heat-numbers" }, "Show numbers"))), this.names,
          this.content);
    this.suggest();
  }

  async suggest() {
    try {
      const known = await propertiesOf(this.type.value);
      replace(this.names, known.map((item) => h("option", { value: item.name })));
    } catch {
      this.names.replaceChildren(); // people write the name of the property
    }
  }

  async load() {
    const by = this.by.value;
    const property = this.property.value.trim();
    this.propertyField.hidden = by !== "property";
    rememberParams({ type: this.type.value, by, span: this.span.value, property: by === "property" ? property : null });
    if (by === "property" && !property) {
      replace(this.content, h("p", { class: "empty" }, "Write the name of a property, such as rack."));
      return;
    }
    const [, , back, ahead, period] = SPANS.find(([key]) => key === this.span.value);
    const today = midnight(serverNow());
    const start = period === "hour" ? new Date(Math.floor(serverNow() / 3600_000) * 3600_000 - back * 86400_000)
      : midnight(today, -back);
    const end = period === "hour" ? new Date(+start + (back + ahead) * 86400_000)
      : midnight(today, Math.max(ahead, 0) + (back && !ahead ? 1 : 0));
    await loading(this.content, async () => draw(await get(`/v2/utilisation${query({
      resource_type: this.type.value, start: iso(start), end: iso(end), period, by, property: by === "property"
        ? property : null,
    })}`), by), "the utilisation");
  }
}

function draw({ start, end, period, series }, by) {
  if (!series.length) return h("p", { class: "empty" }, "Nothing was reserved in this period.");
  const seconds = { hour: 3600, day: 86400, week: 604800 }[period];
  const columns = series[0].values.map((_, at) =>
    new Date(Math.min(Date.parse(start) + at * seconds * 1000, Date.parse(end))));
  const heads = groups(columns, period);
  return [legend(), h("div", { class: "table heat-frame", tabindex: "0", role: "region",
    "aria-label": "Utilisation, a table that scrolls sideways" },
    h("table", { class: "heat" }, h("caption", { class: "visually-hidden" },
      `Utilisation in per cent, by ${by}, in periods of one ${period}`),
      h("thead", {}, h("tr", {}, h("td", { class: "corner" }, ""),
        heads.map(([words, span]) => h("th", { scope: "colgroup", colspan: span, class: "span" }, words)),
        h("th", { scope: "col" }, "Mean")),
        h("tr", { class: "visually-hidden-row" }, h("td", {}, ""),
          columns.map((date) =>
            h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, label(date, period)))), h("td", {}, ""))),
      h("tbody", {}, series.map((item) => seriesRow({ ...item, name: seriesName(item.name, by) }, columns, period)))))];
}

function seriesName(text, by) {
  if (by === "type") return typeTitle(text);
  return text === null || text === "" ? "Without it" : text;
}

function seriesRow({ name: text, capacity, values }, columns, period) {
  const mean = values.reduce((sum, value) => sum + value, 0) / (values.length || 1);
  return h("tr", {}, h("th", { scope: "row" }, h("span", { class: "series" }, name(text)), capacity
    ? h("small", { class: "quiet" }, ` ${count(capacity)}`) : null),
    values.map((value, at) => cell(value, `${plain(text)}, ${label(columns[at], period)}`)),
    h("td", { class: "mean" }, percent(mean)));
}

/** Height and colour both say how much is taken. */
function cell(value, title) {
  const fill = h("span", { class: `level-${Math.min(LEVELS, Math.ceil(value * LEVELS))}` });
  fill.style.height = `${Math.min(100, value * 100)}%`;
  return h("td", { title: `${title}: ${percent(value)}` }, fill, h("b", {}, percent(value)));
}

function percent(value) {
  return `${value > 0 && value < 0.01 ? "<1" : count(value * 100, 0)} %`;
}

function label(date, period) {
  return period === "hour" ? `${day(date)}, ${clock(date)}` : day(date);
}

/** Heads over columns: a day over its hours, a month over its days or weeks. */
function groups(columns, period) {
  const found = [];
  for (const date of columns) {
    const { monthName, year } = fields(date);
    const words = period === "hour" ? day(date) : `${monthName} ${year}`;
    const last = found[found.length - 1];
    if (last && last[0] === words) last[1] += 1;
    else found.push([words, 1]);
  }
  return found;
}

function legend() {
  return h("p", { class: "heat-legend small quiet", "aria-hidden": "true" }, "0 %",
    Array.from({ length: LEVELS }, (_, at) => {
    const fill = h("span", { class: `level-${at + 1}` });
    fill.style.height = `${((at + 1) / LEVELS) * 100}%`;
    return h("i", {}, fill);
  }), "100 %");
}
