// The latest notifications as they happen, and the subscriptions of all projects.

import { get, query } from "../api.js";
import { button, h, icon, name, plain, replace } from "../dom.js";
import { field, problemNote } from "../forms.js";
import { clockSeconds, day } from "../time.js";
import { subscriptionsList } from "../pages/subscriptions.js";
import { may } from "../tables/actions.js";
import { count, leaseLink } from "../tables/cells.js";
import { keepFresh } from "../tables/refresh.js";

const SHOWN = 50; // notifications in the list
const BACK = 200; // numbers before the last one that are looked through at first
const POLL = 3; // seconds
const TYPES = [
  ["", "All"], ["lease.create", "Created"], ["lease.update", "Changed"], ["lease.event.*", "Events"],
  ["lease.delete", "Deleted"],
  ["node.*", "Hosts"], ["audit.*", "Self-audit"], ["subscription.suspended", "Suspended subscriptions"],
];

/** Show the tab. */
export async function show(element, { me }) {
  const log = may(me, "notifications:get_all") ? new Log() : null;
  const list = may(me, "subscriptions:get_all") ? subscriptionsList(me, { all: true }) : null;
  replace(element, log ? log.element : null, list
    ? [h("div", { class: "title" }, h("h2", { class: "grow" }, "Subscriptions and dead letters"), list.create),
      list.element] : null);
  const stops = [];
  if (list) {
    list.table.load();
    stops.push(keepFresh(() => list.table.refresh(), 15), () => list.table.stop());
  }
  if (log) {
    log.begin();
    stops.push(keepFresh(() => log.more(), POLL));
  }
  return () => stops.forEach((stop) => stop());
}

class Log {
  constructor() {
    this.after = null;
    this.items = [];
    this.paused = false;
    this.list = h("ol", { class: "log", tabindex: "0", "aria-label": "Latest notifications, the newest first" });
    this.note = h("div", { role: "alert" });
    this.type = h("select", {}, TYPES.map(([value, words]) => h("option", { value }, words)));
    this.type.addEventListener("change", () => this.begin());
    this.pause = button("Pause", () => this.toggle(), { "aria-pressed": "false" });
    this.element = h("section", { class: "card", "aria-labelledby": "log" },
      h("h2", { id: "log" }, "Latest notifications"),
      h("div", { class: "filters" }, field("Type", this.type), this.pause), this.note, this.list);
  }

  toggle() {
    this.paused = !this.paused;
    this.pause.setAttribute("aria-pressed", String(this.paused));
    this.pause.textContent = this.paused ? "Continue" : "Pause";
    if (!this.paused) this.more();
  }

  /** Begin a little before the last notification. */
  async begin() {
    this.items = [];
    this.after = null;
    await this.attempt(async () => {
      const { after } = await get("/v2/notifications?limit=0");
      this.after = Math.max(0, after - BACK);
    });
    this.draw();
    await this.more();
  }

  async more() {
    if (this.paused || this.after === null || this.busy) return;
    this.busy = true;
    await this.attempt(() => this.page());
    this.busy = false;
  }

  async page() {
    const type = this.type.value;
    const body = await get(`/v2/notifications${query({ after: this.after, event_type: type, limit: BACK })}`);
    if (type !== this.type.value) return;
    this.after = body.after;
    if (!body.notifications.length) return;
    this.items = [...body.notifications.reverse(), ...this.items].slice(0, SHOWN);
    this.draw();
  }

  async attempt(work) {
    try {
      await work();
      this.note.replaceChildren();
    } catch (error) {
      if (error.code === "notifications_removed") this.after = error.body.oldest - 1;
      else if (error.code !== "offline") replace(this.note, problemNote(error));
    }
  }

  /** New items come first; the others stay, so that focus and scroll position do. */
  draw() {
    const shown = new Map([...this.list.children].map((item) => [item.dataset.key, item]));
    const rows = this.items.map((item) => shown.get(String(item.seq)) || row(item));
    if (!rows.length) return replace(this.list, h("li", { class: "empty" }, "No notification of this type is recent."));
    for (const child of [...this.list.children]) if (!rows.includes(child)) child.remove();
    rows.forEach((item, at) => { if (this.list.children[at] !== item) this.list.insertBefore(item,
      this.list.children[at] || null); });
  }
}

function row({ seq, event_type: type, lease_id: lease, created_at: at, payload }) {
  const date = new Date(at);
  const bad = payload.status === "ERROR" || /broken|suspended|not_started|trust_lost/.test(type);
  return h("li", { dataset: { key: String(seq) } }, icon(bad ? "warning" : "dot"),
    h("div", {}, h("b", {}, name(type)), lease ? [" ", leaseLink(lease, payload.name || lease)] : null,
      payload.project_id ? h("span", { class: "quiet" }, " in ", name(payload.project_id)) : null,
      payload.reason || payload.error ? h("div", { class: "small reason" },
        name(typeof payload.error === "object" ? JSON.stringify(payload.error) : payload.reason || payload.error))
          : null),
    h("span", { class: "quiet small nowrap" }, h("time", { datetime: at }, `${day(date)}, ${clockSeconds(date)}`),
      h("span", { class: "seq" }, ` #${plain(count(seq))}`)));
}
