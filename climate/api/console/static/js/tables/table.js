// A table of a list of the API: pages, order, selection, live refresh.

import { api, query } from "../api.js";
import { announce, button, h, icon, plain, replace } from "../dom.js";
import { problemNote } from "../forms.js";
import { keepFocus } from "./refresh.js";

const LATE = 1000; // ms until the page says that it still loads

/**
 * @typedef {object} Column
 * @property {string} label
 * @property {function(object): *} cell the content of the cell of an item
 * @property {string} [sort] key of the order in the API
 * @property {boolean} [header] whether the cell names the row
 * @property {string} [class]
 */

/** A table of one page of a list. Build it with `columns`, put `element` into the page, call `load`. */
export class PagedTable {
  /**
   * @param {object} options
   * @param {string} options.caption what the table lists, for screen readers
   * @param {string} options.path of the API
   * @param {string} options.list key of the items in the answer
   * @param {Column[]} options.columns
   * @param {function(): object} [options.filter] parameters of the request
   * @param {function(): Node|string} options.empty what to show without items
   * @param {string} [options.sort] the order at first
   * @param {number} [options.limit] items on a page
   * @param {boolean} [options.fresh] rebuild rows at each refresh: their texts depend on the time
   * @param {function(object): string} [options.key] identifies an item
   * @param {function(object): string} [options.title] names an item beside its check box: with it, rows can be selected
   * @param {function(): void} [options.selected] called when the selection has changed
   * @param {string} [options.marker] where the first page begins
   * @param {function({marker: string|null, sort: string}): void} [options.moved] called when page or order change
   */
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

  /** Load the present page. `first`: begin with the first page; `quiet`: a refresh. */
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
      this.show(body);
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

  /** Forget the selection. */
  clearSelection() {
    this.selection.clear();
    for (const box of this.table.querySelectorAll("input[type=checkbox]")) box.checked = false;
    this.options.selected();
  }

  /** The columns have changed: draw everything again. */
  setColumns(columns) {
    this.options.columns = columns;
    this.drawHead();
    this.body.replaceChildren();
    if (this.items) this.drawRows();
  }

  /** End requests that are under way. */
  stop() {
    if (this.request) this.request.abort();
  }

  address() {
    const { path, limit, filter } = this.options;
    return path + query({ ...filter(), sort: this.sort, limit, marker: this.marker });
  }

  show(body) {
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
    if (this.options.shown) this.options.shown(this.items);
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

  /** Selected items that changed are replaced; the box of all rows shows how many are selected. */
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
