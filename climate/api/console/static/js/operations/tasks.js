// What the tabs of provisioners' work share: claims, filters by state, statistics of a period.

import { h, name, replace } from "../dom.js";
import { field, loading } from "../forms.js";
import { iso, serverNow } from "../time.js";
import { ago } from "../tables/cells.js";
import { rememberParams } from "../tables/table.js";

const DAY = 86400_000;

/** Who has claimed a task, and until when. */
export function claim({ owner, claimed_until: until, attempt }) {
  const again = attempt > 1 ? h("div", { class: "small quiet" }, `attempt ${attempt}`) : null;
  if (!owner) return [h("span", { class: "quiet" }, "nobody"), again];
  const expired = until && new Date(until) < serverNow();
  return [name(owner), until ? h("div", { class: "small quiet" }, expired ? `claim expired ${ago(until)}`
    : `claim ends ${ago(until)}`) : null, again];
}

/** A choice of states: those of `open` together, or one. `changed` is called after a choice. */
export function stateFilter(states, params, open, changed) {
  const select = h("select", {}, h("option", { value: "" }, "All that are not over"),
    Object.entries(states).map(([value, [, words]]) =>
      h("option", { value, selected: params.get("state") === value }, words)));
  select.addEventListener("change", () => {
    rememberParams({ state: select.value });
    changed();
  });
  return { element: h("div", { class: "filters" }, field("State", select)),
    states: () => (select.value ? [select.value] : open) };
}

/** A card with statistics of the last days; `load` receives `{since, until}`. */
export class PeriodCard {
  constructor({ id, title, hint, load, draw, nothing }) {
    this.fetch = load;
    this.draw = draw;
    this.nothing = nothing;
    this.content = h("div");
    this.days = h("select", { id: `${id}-days` },
      [7, 30, 90, 365].map((days) => h("option", { value: days, selected: days === 30 }, days === 365 ? "The last year"
        : `The last ${days} days`)));
    this.days.addEventListener("change", () => this.load());
    this.element = h("section", { class: "card", "aria-labelledby": id },
      h("div", { class: "title" }, h("h2", { id, class: "grow" }, title)),
      h("p", { class: "hint" }, hint), h("div", { class: "filters" }, field("Period", this.days)), this.content);
  }

  async load() {
    const until = serverNow();
    const span = { since: iso(new Date(until - Number(this.days.value) * DAY)), until: iso(until) };
    await loading(this.content, async () => {
      const items = await this.fetch(span);
      return items.length ? this.draw(items) : h("p", { class: "empty" }, this.nothing);
    });
  }
}

/** Replace the content by a card that says why there is none. */
export function emptyCard(element, title, text) {
  replace(element, h("div", { class: "card empty" }, h("p", { class: "strong" }, title), h("p", {}, text)));
}
