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
  ["around", "60 days around now", 30, 30, "day"], ["year", "Last year", 364, 0, "week"],
];
const SECONDS = { hour: 3600, day: 86400, week: 604800 };
const LEVELS = 5;
const MOST_NUMBERS = 62; // columns above which days have no room for their numbers

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
    const [start, end] = span(period, back, ahead);
    await loading(this.content, async () => draw(await get(`/v2/utilisation${query({
      resource_type: this.type.value, start: iso(start), end: iso(end), period, by, property: by === "property"
        ? property : null,
    })}`), by), "the utilisation");
  }
}

/**
 * The first and the last moment: whole hours, or days of 24 hours that end at a midnight of the
 * chosen zone, today included. Beyond a change of the clocks, days begin an hour off midnight.
 */
function span(period, back, ahead) {
  const now = serverNow();
  if (period !== "hour") return wholeDays(midnight(now, ahead || 1), back + (ahead || 1));
  const hour = Math.floor(now / 3600_000) * 3600_000;
  return [new Date(hour - back * 86400_000), new Date(hour + ahead * 86400_000)];
}

function wholeDays(end, days) {
  return [new Date(end.getTime() - days * 86400_000), end];
}

function draw({ start, period, series }, by) {
  if (!series.length) return h("p", { class: "empty" }, "Nothing was reserved in this period.");
  const times = series[0].values.map((_, at) => new Date(Date.parse(start) + at * SECONDS[period] * 1000));
  const caption = `Utilisation in per cent, by ${by}, in periods of one ${period}`;
  return [legend(), h("div", { class: "table heat-frame", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: "heat" }, h("caption", { class: "visually-hidden" }, caption), head(times, period, by),
      h("tbody", {}, series.map((item) => seriesRow({ ...item, name: seriesName(item.name, by) }, times, period)))))];
}

/** Months over days or days over hours; then, for screen readers, each period. */
function head(times, period, by) {
  const spans = groups(times, period).map(([words, span]) =>
    h("th", { scope: "colgroup", colspan: span, class: "span" }, words));
  const isSparse = period === "day" && times.length <= MOST_NUMBERS;
  const each = times.map((date) => h("th", { scope: "col" },
    h("span", { class: "visually-hidden" }, label(date, period)), isSparse ? dayNumber(date, period) : null));
  return h("thead", {},
    h("tr", {}, h("th", { scope: "col" }, `${by[0].toUpperCase()}${by.slice(1)}, capacity`), spans,
      h("th", { scope: "col" }, "Mean")),
    h("tr", { class: "each" }, h("td"), each, h("td")));
}

function dayNumber(date, period) {
  return h("span", { class: "day-number", "aria-hidden": "true" }, String(fields(middle(date, period)).day));
}

function seriesName(text, by) {
  if (by === "type") return typeTitle(text);
  return text === null || text === "" ? "Without it" : text;
}

function seriesRow({ name: text, capacity, values }, times, period) {
  const mean = values.reduce((sum, value) => sum + value, 0) / (values.length || 1);
  return h("tr", {}, h("th", { scope: "row" }, h("span", { class: "series" }, name(text)), capacity
    ? h("small", { class: "quiet" }, ` ${count(capacity)}`) : null),
    values.map((value, at) => cell(value, `${plain(text)}, ${label(times[at], period)}`)),
    h("td", { class: "mean" }, percent(mean)));
}

/** Height and colour both say how much is taken. */
function cell(value, title) {
  const fill = h("span", { class: `level-${Math.min(LEVELS, Math.ceil(value * LEVELS))}` });
  fill.style.height = value > 0 ? `max(2px, ${Math.min(100, value * 100)}%)` : "0";
  return h("td", { title: `${title}: ${percent(value)}` }, fill, h("b", {}, percent(value)));
}

function percent(value) {
  return `${value > 0 && value < 0.01 ? "<1" : count(value * 100, 0)} %`;
}

function label(date, period) {
  return period === "hour" ? `${day(date)}, ${clock(date)}` : day(middle(date, period));
}

/** The middle of a period lies in the right day, also when the clocks have changed since the start. */
function middle(date, period) {
  return new Date(date.getTime() + SECONDS[period] * 500);
}

function groups(times, period) {
  const found = [];
  for (const date of times) {
    const { monthName, year } = fields(middle(date, period));
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
