// Tables with pages, order and selection, and the contents of their cells.

import { api, keepFocus, query } from "../api.js";
import { announce, button, h, icon, link, name, plain, problemNote, replace, uid } from "../dom.js";
import { badges, grouped as count, LIMITS, limitTitle } from "../lease/words.js";
import { duration, moment, serverNow, utc } from "../time.js";

export { count };

const LATE = 1000; // ms until the page says that it still loads

/**
 * A table of one page of a list. `path` of the API, `list`: key of the items in the answer; `columns`:
 * `{label, cell(item), sort, header, class}`; `filter()`: parameters; `empty()`: content without items; `title(item)`
 * makes rows selectable; `fresh`: rebuild rows at each refresh, as their texts depend on the time.
 */
export class PagedTable {
  constructor(options) {
    this.options = { limit: 50, key: (item) => item.id, filter: () => ({}), moved: () => {}, selected: () => {},
      ...options };
    this.sort = options.sort || "";
    this.marker = options.marker || null;
    this.before = options.marker ? [null] : [];
    this.selection = new Map();
    this.body = h("tbody", { role: "rowgroup" });
    this.head = h("tr", { role: "row" });
    this.table = h("table", { role: "table", class: "listing" },
      h("caption", { class: "visually-hidden" }, options.caption),
      h("thead", { role: "rowgroup" }, this.head), this.body);
    this.note = h("div");
    this.status = h("p", { class: "quiet", role: "status" });
    this.nothing = h("div", { class: "empty", hidden: true });
    this.pager = h("nav", { class: "pager", "aria-label": `Pages: ${options.caption}`, hidden: true });
    this.frame = h("div", { class: "table listing-frame", hidden: true }, this.table);
    this.element = h("div", { class: "paged" }, this.note, this.status, this.frame, this.nothing, this.pager);
    this.drawHead();
  }

  async load({ first = false, quiet = false } = {}) {
    if (first) {
      this.marker = null;
      this.before = [];
    }
    if (quiet && this.request) return;
    if (this.request) this.request.abort();
    const request = new AbortController();
    this.request = request;
    if (!this.loaded) this.status.textContent = "Loading.";
    const late = quiet ? 0 : setTimeout(() => { this.status.textContent = "Still loading."; }, LATE);
    this.element.setAttribute("aria-busy", String(!quiet));
    try {
      const { body } = await api("GET", this.address(), { signal: request.signal, background: quiet });
      this.show(body, quiet);
    } catch (error) {
      if (error.name !== "AbortError") this.failed(error, quiet);
    } finally {
      clearTimeout(late);
      if (this.request === request) this.settled();
    }
  }

  settled() {
    this.request = null;
    this.status.textContent = "";
    this.element.setAttribute("aria-busy", "false");
  }

  /** Load the present page again, without a word while it loads. */
  refresh() {
    return this.load({ quiet: true });
  }

  clearSelection() {
    this.selection.clear();
    for (const box of this.table.querySelectorAll("input[type=checkbox]")) box.checked = false;
    this.options.selected();
  }

  setColumns(columns) {
    this.options.columns = columns;
    this.drawHead();
    this.body.replaceChildren();
    if (this.items) this.drawRows();
  }

  stop() {
    if (this.request) this.request.abort();
  }

  address() {
    const { path, limit, filter } = this.options;
    return path + query({ ...filter(), sort: this.sort, limit, marker: this.marker });
  }

  show(body, quiet) {
    this.items = body[this.options.list];
    this.next = body.next ? new URL(body.next, location.href).searchParams.get("marker") : null;
    this.loaded = true;
    this.note.replaceChildren();
    this.drawRows();
    this.drawPager();
    const none = this.items.length === 0;
    this.frame.hidden = none;
    this.nothing.hidden = !none;
    if (none) replace(this.nothing, this.before.length ? "This page is empty now." : this.options.empty());
    if (this.options.shown) this.options.shown(this.items, quiet);
  }

  failed(error, quiet) {
    if (quiet && error.code === "offline") return; // the banner says so
    if (error.code === "invalid_marker" || (error.status === 400 && this.marker
      && /marker/.test(JSON.stringify(error.body)))) {
      this.load({ first: true });
      return;
    }
    if (this.options.refused && this.options.refused(error)) return;
    replace(this.note, h("div", { class: "stack" }, problemNote(error), button("Try again", () => this.load())));
  }

  drawHead() {
    const { columns, title } = this.options;
    const all = h("input", { type: "checkbox", "aria-label": "Select all rows of this page",
      onchange: () => this.selectAll(all.checked) });
    this.all = all;
    keepFocus(this.head, () =>
      replace(this.head, title ? h("th", { role: "columnheader", scope: "col", class: "tick" }, all) : null,
      columns.map((column) => this.heading(column))));
  }

  heading({ label, sort, class: kind, hidden }) {
    const attributes = { role: "columnheader", scope: "col", class: kind };
    if (!sort) return h("th", attributes, hidden ? h("span", { class: "visually-hidden" }, label) : label);
    const ascending = this.sort === sort;
    const descending = this.sort === `-${sort}`;
    const order = ascending ? "ascending" : descending ? "descending" : null;
    const arrow = ascending || descending ? icon(ascending ? "up" : "down") : null;
    return h("th", { ...attributes, class: `sortable ${kind || ""}`.trim(), "aria-sort": order },
      h("button", { type: "button", class: "sort", dataset: { focus: `sort-${sort}` },
        onclick: () => this.order(ascending ? `-${sort}` : sort) }, label, arrow));
  }

  order(sort) {
    this.sort = sort;
    this.drawHead();
    this.load({ first: true });
    this.options.moved({ marker: null, sort });
  }

  drawRows() {
    const { key } = this.options;
    keepFocus(this.body, () => {
      const old = new Map([...this.body.children].map((row) => [row.dataset.key, row]));
      const rows = this.items.map((item) => this.row(item, old.get(key(item))));
      rows.forEach((row, at) => {
        if (this.body.children[at] !== row) this.body.insertBefore(row, this.body.children[at] || null);
      });
      while (this.body.children.length > rows.length) this.body.lastChild.remove();
    });
    if (this.options.title) this.keepSelected();
  }

  row(item, old) {
    const print = JSON.stringify(item);
    if (old && old.print === print && !this.options.fresh) return old;
    const row = old || h("tr", { role: "row", dataset: { key: this.options.key(item) } });
    row.print = print;
    const cells = this.options.columns.map((column) => cellOf(column, item));
    if (this.options.title) cells.unshift(h("td", { role: "cell", class: "tick" }, this.tick(item)));
    replace(row, cells);
    return row;
  }

  tick(item) {
    const key = this.options.key(item);
    return h("input", {
      type: "checkbox", dataset: { focus: "tick" }, "aria-label": `Select ${plain(this.options.title(item))}`,
      checked: this.selection.has(key),
      onchange: ({ target }) => {
        if (target.checked) this.selection.set(key, item);
        else this.selection.delete(key);
        this.keepSelected();
      },
    });
  }

  selectAll(checked) {
    for (const item of this.items) {
      if (checked) this.selection.set(this.options.key(item), item);
      else this.selection.delete(this.options.key(item));
    }
    for (const box of this.body.querySelectorAll("td.tick input")) box.checked = checked;
    this.keepSelected();
  }

  keepSelected() {
    let here = 0;
    for (const item of this.items) {
      const key = this.options.key(item);
      if (!this.selection.has(key)) continue;
      this.selection.set(key, item);
      here += 1;
    }
    this.all.checked = here > 0 && here === this.items.length;
    this.all.indeterminate = here > 0 && here < this.items.length;
    this.options.selected();
  }

  drawPager() {
    this.pager.hidden = !this.next && !this.before.length;
    keepFocus(this.pager, () => replace(this.pager,
      button([icon("left"), "Previous"], () => this.turn(-1),
        { disabled: !this.before.length, "data-focus": "previous" }),
      h("span", { class: "quiet" }, `Page ${this.before.length + 1}${this.next ? "" : ", the last"}`),
      button(["Next", icon("right")], () => this.turn(1), { disabled: !this.next, "data-focus": "next" })));
  }

  async turn(direction) {
    if (direction > 0) this.before.push(this.marker);
    this.marker = direction > 0 ? this.next : this.before.pop();
    this.options.moved({ marker: this.marker, sort: this.sort });
    await this.load();
    announce(`Page ${this.before.length + 1}, ${this.items.length} rows`);
    this.element.scrollIntoView({ block: "nearest" });
  }
}

function cellOf({ label, cell, header, class: kind }, item) {
  const attributes = { role: header ? "rowheader" : "cell", class: kind, scope: header ? "row" : null,
    "data-label": label };
  const content = cell(item);
  // One child: on narrow screens a cell is a grid of its label and its content.
  return h(header ? "th" : "td", attributes, Array.isArray(content) ? h("div", {}, content) : content);
}

/** A table of items that are all here: same look as `PagedTable`, without requests. */
export function plainTable({ caption, columns, items, key = (item) => item.id, hideCaption = true }) {
  return h("div", { class: "table listing-frame" }, h("table", { role: "table", class: "listing" },
    h("caption", { class: hideCaption ? "visually-hidden" : null }, caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(({ label, class: kind, hidden }) =>
      h("th", { role: "columnheader", scope: "col", class: kind }, hidden
        ? h("span", { class: "visually-hidden" }, label) : label)))),
    h("tbody", { role: "rowgroup" }, items.map((item) => h("tr", { role: "row", dataset: { key: key(item) } },
      columns.map((column) => cellOf(column, item)))))));
}

/** Put the parameters of a page into the address bar, so that the address can be sent and reloaded. */
export function rememberParams(values) {
  const params = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(values)) {
    if (value === null || value === undefined || value === "") params.delete(key);
    else params.set(key, value);
  }
  const text = params.toString();
  history.replaceState(history.state, "", location.pathname + (text ? `?${text}` : ""));
}

// Contents of table cells and fact lists

/** A moment in the user's zone with UTC beside it. */
export function when(text, absent = "never") {
  if (!text) return h("span", { class: "quiet" }, absent);
  const date = new Date(text);
  return h("time", { datetime: text, class: "moment" }, moment(date), " ", h("small", { class: "quiet" }, utc(date)));
}

/** How long ago a moment is: "12 s ago", "in 3 h". */
export function ago(text, absent = "never") {
  if (!text) return absent;
  const seconds = (serverNow() - new Date(text)) / 1000;
  return seconds < 0 ? `in ${duration(-seconds)}` : `${duration(seconds)} ago`;
}

const STATES = {
  ready: ["dot", "Ready"],
  preparing: ["half", "Getting ready"],
  off: ["power", "Off, bookable"],
  set_aside: ["warning", "Set aside"],
  failing: ["warning", "Failing"],
};

/** The states of resources, for a filter: `[value, words]`. */
export const STATE_CHOICES = Object.entries(STATES).map(([value, [, words]]) => [value, words]);

export function stateOf(resource) {
  return resourceState(stateKey(resource));
}

export function resourceState(state) {
  const [symbol, words] = STATES[state] || ["ring", state || "Unknown"];
  return h("span", { class: "state", dataset: { state } }, icon(symbol), words);
}

export function stateKey({ state, reservable }) {
  return state || (reservable ? "ready" : "failing");
}

export function leaseStatus(lease) {
  return h("div", { class: "badges" }, badges(lease, serverNow()));
}

export function leaseLink(id, label, key = "lease") {
  return link(`/console/leases/${encodeURIComponent(id)}`, name(label || id), { dataset: { focus: key } });
}

export function resourceLink(id, label, key = "resource") {
  return link(`/console/resources/${encodeURIComponent(id)}`, name(label || id), { dataset: { focus: key } });
}

/** "1 host", "3 hosts". */
export function plural(amount, noun, several = `${noun}s`) {
  return `${count(amount)} ${amount === 1 ? noun : several}`;
}

export function meter(label, used, limit, { unit = "", left = true } = {}) {
  const id = uid("meter");
  if (limit === null || limit === undefined) {
    return h("div", { class: "metered" }, h("p", { class: "bar-label" }, h("span", {}, label),
      h("b", {}, count(used), unit)),
      h("p", { class: "hint" }, "No limit."));
  }
  const share = limit > 0 ? Math.min(1, used / limit) : 1;
  const fill = h("span");
  fill.style.width = `${share * 100}%`;
  const rest = Math.max(0, limit - used);
  return h("div", { class: "metered" },
    h("p", { class: "bar-label", id }, h("span", {}, label), " ",
      h("b", {}, `${count(used)} of ${count(limit)}${unit}`)),
    h("div", { class: used >= limit ? "meter full" : "meter", role: "meter", "aria-labelledby": id, "aria-valuemin": 0,
      "aria-valuemax": Math.max(limit, used), "aria-valuenow": used,
      "aria-valuetext": `${count(used)} of ${count(limit)}${unit}` }, fill),
    left ? h("p", { class: "hint" }, used > limit ? `${count(used - limit)}${unit} above the limit.`
      : `${count(rest)}${unit} left.`) : null);
}

// The limits of the project and of the user, as bars.

/** The bars of the limits that apply. */
export function limitMeters(limits, { title = true } = {}) {
  if (!limits || limits.error || !limits.apply) return null;
  const parts = limits.parties.map((party) => [party, bars(party, limits.period)]).filter(([, list]) => list.length);
  if (!parts.length) return null;
  return parts.map(([{ scope }, list]) => [
    title ? h("h2", {}, scope === "project" ? "Your project\u2019s limits" : "Your limits")
      : h("h3", {}, scope === "project" ? "Your project" : "You"), h("div", { class: "meters" }, list)])
    .concat([h("p", { class: "small" }, link("/console/limits", "All limits"))]);
}

function bars({ limits, used }, period) {
  return Object.keys(LIMITS).filter((key) => limits[key] !== null && limits[key] !== undefined)
    .map((key) => meter(limitTitle(key, period), used[key], limits[key], { left: false }));
}

/** A list of facts: `[label, content]`; those without content are left out. */
export function facts(pairs) {
  return h("dl", { class: "pairs" }, pairs.filter((pair) => pair && pair[1] !== null && pair[1] !== undefined
    && pair[1] !== "")
    .map(([label, content]) => [h("dt", {}, label), h("dd", {}, content)]));
}

// The resource types that have resources of their own.

const ON_OTHERS = ["virtual:instance", "flavor:instance", "virtual:stack"];

/** The types to list resources of: instances are reserved on hosts, stacks on resources of several types. */
export function typesWithResources(me) {
  const own = (me.resource_types || []).filter((type) => !ON_OTHERS.includes(type));
  return own.length ? own : ["physical:host"];
}
