// One lease: what it is, its time, its resources, what can be done with it.

import { api, get, onChange, Problem, root } from "../api.js";
import { announce, button, dialog, h, icon, link, loading, name, plain, problemNote, replace } from "../dom.js";
import {
  change, changeWait, endNow, latestOf, latestWords, prolong, remove, startPart, waitPart,
} from "../lease/actions.js";
import { resourceTypes } from "../lease/fields.js";
import {
  amounts, badges, contents, copyable, eventWords, history, isDelayed, isOver, label, missing, note,
  propertyWords, shareWords, stackedTime, state, summary, typeTitle, usage,
} from "../lease/words.js";
import { timeline } from "../tables/charts.js";
import { expressionText } from "../tables/properties.js";
import { limitMeters, resourceState } from "../tables/table.js";
import { clock, duration, moment, serverNow, shortMoment } from "../time.js";

const POLL = 4000; // ms between conditional requests
const TICK = 30_000; // ms between redraws of what is left

export async function mount(element, context) {
  const view = new LeaseView(element, context);
  await view.open();
  return () => view.close();
}

class LeaseView {
  constructor(element, context) {
    this.element = element;
    this.context = context;
    this.lease = null;
    this.etag = "";
    this.extras = { resources: null, readiness: null, limits: null, notifications: [] };
    this.sections = new Map(); // what each part shows, as text
    this.isClosed = false;
  }

  async open() {
    const waiting = h("div", { class: "page" });
    replace(this.element, waiting);
    try {
      await this.fetch();
    } catch (error) {
      if (error instanceof Problem && error.status === 404) return this.showMissing();
      await loading(waiting, async () => { throw error; });
      waiting.append(button("Reload", () => this.context.navigate(this.context.path, { replace: true })));
      return;
    }
    this.build();
    this.stops = [onChange(() => this.refresh())];
    const poll = setInterval(() => { if (!document.hidden) this.refresh(); }, POLL);
    const tick = setInterval(() => this.render(), TICK);
    this.stops.push(() => clearInterval(poll), () => clearInterval(tick));
    this.fetchExtras();
  }

  close() {
    this.isClosed = true;
    for (const stop of this.stops || []) stop();
  }

  isShown() {
    return !this.isClosed && this.lease !== null;
  }

  async fetch({ background = false } = {}) {
    // The ETag does not cover the place in the wait list.
    const headers = this.etag && !this.lease?.waiting ? { "If-None-Match": this.etag } : {};
    const { status, body, headers: answer } = await api("GET", `/v2/leases/${encodeURIComponent(this.context.id)}`,
      { headers, background });
    if (status === 304) return false;
    const isSame = JSON.stringify(this.lease) === JSON.stringify(body);
    this.lease = body;
    this.etag = answer.get("ETag");
    return !isSame;
  }

  async fetchExtras() {
    const path = `/v2/leases/${this.lease.id}`;
    const log = `/v2/notifications?lease_id=${this.lease.id}&limit=200`;
    const may = this.context.me.allowed;
    const quietly = async (key, reading, pick = (body) => body) => {
      try {
        this.extras[key] = pick(await reading);
      } catch (error) {
        if (this.extras[key] === null) this.extras[key] = { error };
      }
    };
    const options = { background: true };
    await Promise.all([
      quietly("resources", get(`${path}/resources?limit=200`, options)),
      quietly("readiness", get(`${path}/readiness`, options)),
      may["notifications:get"] ? quietly("notifications", get(log, options), (body) => body.notifications) : null,
      may["limits:get"] ? quietly("limits", get("/v2/limits", options)) : null,
    ]);
    if (!this.isClosed && this.lease) this.render();
    this.findLatestEnd();
  }

  /** Find out until when the lease can be prolonged, once for each state of it. */
  async findLatestEnd() {
    const { lease, context: { me } } = this;
    const key = `${this.etag} ${lease.end}`;
    if (this.latestKey === key || !me.allowed["leases:put"] || !["ACTIVE", "PENDING"].includes(lease.status)) return;
    this.latestKey = key;
    try {
      const found = await latestOf(this);
      if (this.latestKey !== key || this.isClosed) return;
      this.extras.latest = found;
      this.render();
    } catch {
      // The dialog says why it is not known.
    }
  }

  async refresh() {
    if (this.isRefreshing || this.isClosed || !this.lease) return;
    this.isRefreshing = true;
    const before = this.lease;
    try {
      const isChanged = await this.fetch({ background: true });
      if (this.isClosed) return;
      if (isChanged) this.announceChange(before);
      if (isChanged || this.isPreparing()) await this.fetchExtras();
      if (isChanged) this.render();
    } catch (error) {
      if (error.status === 404) this.showMissing(true);
    } finally {
      this.isRefreshing = false;
    }
  }

  async reload() {
    try {
      await this.fetch();
      this.render();
      await this.fetchExtras();
    } catch (error) {
      if (error.status === 404) this.showMissing(true);
    }
  }

  isPreparing() {
    return this.extras.readiness?.state === "preparing" || isDelayed(this.lease, serverNow());
  }

  announceChange(before) {
    const [one, other] = [state(before, serverNow()).text, state(this.lease, serverNow()).text];
    if (one !== other) announce(`The lease is now: ${other}.`);
    else if (before.degraded !== this.lease.degraded) {
      announce(this.lease.degraded ? "Resources of the lease fail." : "All resources work again.");
    }
  }

  showMissing(isGone = false) {
    this.close();
    this.context.title("Lease not found");
    const text = isGone ? "This lease has been deleted." : "There is no such lease in your project.";
    replace(this.element,
      missing(isGone ? "The lease is gone" : "Lease not found", text, link("/console/leases", "Show the leases")));
  }

  say(content) {
    replace(this.message, content);
    if (content) this.message.scrollIntoView({ block: "nearest" });
  }

  build() {
    const part = (key, tag = "section", className = "card") => h(tag, { class: className, "data-part": key });
    this.message = h("div", { role: "alert" });
    this.parts = Object.fromEntries(
      ["title", "warning", "wait", "time", "manual", "resources", "use", "past", "next", "asked", "limits"].map((key) =>
      [key, key === "title" || key === "warning" ? part(key, "div", `lease-${key}`) : part(key)]));
    const { title, warning, wait, time, manual, resources, use, past, next, asked, limits } = this.parts;
    replace(this.element, h("div", { class: "page lease" }, title, this.message, warning,
      h("div", { class: "columns" }, h("div", {}, wait, time, manual, resources, use, past),
        h("div", {}, asked, next, limits))));
    this.render();
  }

  render() {
    if (this.isClosed || !this.lease) return;
    const now = serverNow();
    const { lease, extras } = this;
    this.showTitle();
    this.part("title", [lease.name, lease.status, lease.degraded, summary(lease, now), state(lease, now)],
      () => this.head(now));
    this.part("warning", [lease.degraded, lease.trust_lost, lease.status, extras, isDelayed(lease, now)],
      () => warnings(lease, extras, now));
    this.part("wait", [lease.status, lease.waiting], () => waitPart(lease));
    this.part("time", [lease, Math.floor(now / TICK), extras.readiness],
      () => lease.status !== "WAITING"
        && [h("h2", {}, "Time"), timeline(lease, { now, ready: preparedFrom(lease, extras) })]);
    this.part("manual", [lease.status, lease.reservations], () => startPart(this));
    this.part("resources", [lease.status, extras.resources, extras.readiness],
      () => resourceTable(lease, extras, this.context.me));
    this.part("use", [lease.status, lease.reservations], () => howToUse(lease));
    this.part("past", [lease, extras.notifications], () => past(lease, extras.notifications));
    this.part("next", [lease.events], () => upcoming(lease));
    this.part("asked", [lease], () => askedFor(lease, () => this.showJson()));
    this.part("limits", [extras.limits, extras.latest, isOver(lease)],
      () => limitPart(lease, extras, this.context.me));
  }

  /** The name of the lease as the title of the page, announced once. */
  showTitle() {
    if (this.titled === this.lease.name) return;
    this.titled = this.lease.name;
    this.context.title(plain(this.titled));
  }

  part(key, shows, draw) {
    const text = JSON.stringify(shows);
    if (this.sections.get(key) === text) return;
    this.sections.set(key, text);
    const element = this.parts[key];
    const focused = element.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
    const content = [draw()].flat(Infinity).filter(Boolean);
    element.hidden = !content.length;
    replace(element, content);
    if (focused) element.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  head(now) {
    const { lease } = this;
    return [
      h("p", { class: "crumbs" }, link("/console/leases", "Leases", { "data-focus": "leases" }), " / ",
        name(lease.name)),
      h("div", { class: "title" }, h("h1", {}, name(lease.name)),
        h("div", { class: "badges", id: "status" }, badges(lease, now)),
        h("div", { class: "actions" }, this.actions()),
        h("p", { class: "subtitle" }, summary(lease, now))),
    ];
  }

  actions() {
    const { lease, context: { me, navigate } } = this;
    const may = me.allowed;
    const over = isOver(lease);
    const waits = lease.status === "WAITING";
    const act = (text, focus, run, kind) => button(text, run, { kind, "data-focus": focus, "data-action": focus });
    return [
      may["leases:put"] && waits ? act("Change", "change", () => changeWait(this), "primary") : null,
      may["leases:put"] && !over && !waits ? act("Prolong", "prolong", () => prolong(this), "primary") : null,
      may["leases:put"] && !over && !waits ? act("Change", "change", async () => change(this, await resourceTypes()))
        : null,
      may["leases:put"] && lease.status === "ACTIVE" ? act("End now", "end", () => endNow(this), "danger") : null,
      may["leases:delete"] && lease.status !== "DELETING" && lease.status !== "ACTIVE"
        ? act("Delete", "delete", () => remove(this, () => navigate("/console/leases")), "danger") : null,
    ];
  }

  showJson() {
    dialog({ title: "The lease as JSON", wide: true,
      content: h("pre", { tabindex: 0 }, JSON.stringify(this.lease, null, 2)) });
  }
}

/** When the preparation of the hosts begins or ended, or null. */
function preparedFrom(lease, { readiness, resources }) {
  if (lease.ready_at) return new Date(lease.ready_at);
  const begins = (resources?.resources || []).map((item) => Date.parse(item.start));
  const starts = begins.filter((time) => time < Date.parse(lease.start));
  if (starts.length) return new Date(Math.min(...starts));
  return readiness?.ready_at ? new Date(readiness.ready_at) : null;
}

function warnings(lease, { resources, readiness }, now) {
  const notes = [];
  const held = resources?.resources || [];
  const failing = held.filter(({ state: now_ }) => ["failing", "set_aside"].includes(now_)).map((item) => item.name);
  const change = lease.reservations.map((item) => item.details.not_reserved).find(Boolean);
  if (lease.status === "ERROR") {
    notes.push(note("bad", "refused", h("p", {}, h("b", {}, "The lease has failed. "),
      "climate could not hand over or reclaim all resources. It tries again. If that takes long, ",
      "ask your operator.")));
  } else if (lease.degraded && !isOver(lease)) {
    notes.push(note("care", "warning", h("p", {}, ...(change ? [h("b", {}, "Change in Heat not reserved: "), change]
      : [h("b", {}, degradedTitle(failing)), " ", degradedText(lease)]))));
  }
  if (lease.trust_lost) notes.push(
    note("care", "warning", h("p", {}, h("b", {}, "climate cannot act as you. "), lease.trust_lost)));
  if (isDelayed(lease, now)) {
    const hosts = readiness?.waiting_for || [];
    notes.push(note("care", "half", h("p", {}, h("b", {}, "The start waits for hosts. "),
      hosts.length ? `Not ready yet: ${hosts.join(", ")}. ` : "",
      "The lease starts when they are ready; its end stays. To start now with what is ready, choose Change.")));
  }
  return notes;
}

function degradedTitle(failing) {
  if (!failing.length) return "Some resources fail.";
  const more = failing.length > 5 ? " and more" : "";
  return ["Failing hosts: ", name(failing.slice(0, 5).join(", ")), `${more}.`];
}

function degradedText(lease) {
  const isMissing = lease.reservations.some((item) => item.missing_resources);
  if (lease.trust_lost) return "";
  if (isMissing) return "No other resource is free. climate replaces it when one is free; you need do nothing.";
  return "climate tries to replace them while the lease runs; you need do nothing.";
}

function howToUse(lease) {
  if (isOver(lease)) return null;
  const present = lease.reservations.filter(({ status }) => status !== "deleted");
  const parts = present.map(usage).filter(({ items }) => items.length);
  if (!parts.length) return null;
  const isEarly = ["PENDING", "WAITING"].includes(lease.status) || lease.status === "CREATING";
  return [h("h2", {}, "How to use it"),
    isEarly ? h("p", { class: "quiet" }, "This works from the start of the lease.") : null,
    parts.map(({ title, hint, items }) => h("div", { class: "use" }, h("h3", {}, title),
      hint ? h("p", { class: "hint" }, hint) : null, items.map(({ label: what, text }) => copyable(text, what))))];
}

function past(lease, notifications) {
  const list = Array.isArray(notifications) ? notifications : [];
  const entries = history(list, lease, moment);
  return [h("h2", {}, "History"), h("ol", { class: "events" }, entries.map(({ at, text, detail, symbol }) =>
    h("li", {}, icon(symbol),
      h("span", {}, name(text), detail ? h("span", { class: "quiet line" }, name(detail)) : null),
      h("time", { datetime: at.toISOString(), title: `${clock(at, "UTC")} UTC` },
        Math.abs(at - serverNow()) < 6 * 86400_000 ? shortMoment(at) : moment(at)))))];
}

function upcoming(lease) {
  const open = lease.events.filter(({ status }) => status === "UNDONE" || status === "IN_PROGRESS");
  if (!open.length) return null;
  open.sort((one, other) => Date.parse(one.at) - Date.parse(other.at));
  return [h("h2", {}, "Next events"), h("dl", { class: "pairs" }, open.map((event) =>
    [h("dt", {}, name(eventWords(event))), h("dd", {}, stackedTime(event.at))]))];
}

function askedFor(lease, showJson) {
  const pair = (what, value) => [h("dt", {}, what), h("dd", {}, value)];
  return [h("h2", {}, "Request"),
    h("dl", { class: "pairs" },
      lease.reservations.map((reservation) => asked(reservation, pair, isOver(lease))),
      lease.status === "WAITING" ? pair("Duration", duration((Date.parse(lease.end) - Date.parse(lease.start)) / 1000))
        : [pair("From", stackedTime(lease.start)), pair("To", stackedTime(lease.end))],
      pair("Starts", lease.start_when === "ready" ? "when its hosts are ready" : "as scheduled"),
      pair("Owner", [name(lease.user_id), ", ", name(lease.project_id)]),
      pair("Id", h("span", { class: "mono" }, lease.id))),
    h("div", { class: "actions" },
      button("Show as JSON", showJson, { kind: "link", "data-focus": "json" }),
      h("a", { href: root(`/v2/leases/${lease.id}/calendar.ics`), download: "", "data-focus": "ics" },
        "Calendar file (.ics)"))];
}

function limitPart(lease, { limits, latest }, me) {
  const bars = lease.project_id === me.project.id ? limitMeters(limits) : null;
  const text = latest && !isOver(lease) ? h("p", { class: "quiet", id: "latest-end" }, latestWords(latest)) : null;
  if (!text) return bars;
  return [bars || h("h2", {}, "Prolonging"), text];
}

const FILTERS = ["resource_properties", "hypervisor_properties", "network_properties"];

function asked(reservation, pair, hasEnded) {
  const { least, most } = amounts(reservation);
  const number = least === most ? String(most) : `${least} to ${most}`;
  const filters = FILTERS.map((key) => expressionText(reservation.params[key])).filter(Boolean);
  const rest = Object.entries(reservation.params).filter(([key, value]) => isTold(key, value))
    .map(([key, value]) => `${label(key)} ${typeof value === "object" ? JSON.stringify(value) : value}`);
  return [pair(typeTitle(reservation.resource_type),
    reservation.status === "deleted" && !hasEnded ? `${number}, removed` : number),
    filters.length ? pair("With", name(filters.join(" and "))) : null,
    rest.length ? pair(rest.length && filters.length ? "And" : "With", name(rest.join(", "))) : null];
}

function isTold(key, value) {
  if (["min", "max", "amount", "volume_type_id", "before_end", "on_start", "on_end", "template", "files", "server",
    ...FILTERS].includes(key)) return false;
  return value !== null && value !== "" && !(typeof value === "object" && !Object.keys(value).length);
}

// The table of the resources that a lease holds.

const SHOWN = 12; // rows before the rest is folded

function resourceTable(lease, { resources, readiness }, me) {
  if (!resources) return [h("h2", {}, "Resources"), h("p", { class: "quiet" }, "Loading.")];
  if (resources.error) return [h("h2", {}, "Resources"), problemNote(resources.error)];
  const list = resources.resources;
  if (!list.length) return [h("h2", {}, "Resources"), h("p", { class: "quiet" }, emptyText(lease))];
  const types = [...new Set(list.map((item) => item.resource_type))];
  const isPast = isOver(lease);
  return [types.map((type) => oneType(type, list.filter((item) => item.resource_type === type), me, isPast)),
    resources.next ? h("p", { class: "quiet" }, `The first ${list.length} are shown.`) : null, ready(readiness)];
}

function emptyText(lease) {
  if (["TERMINATED", "DELETING"].includes(lease.status)) return "The lease has given its resources back.";
  return `climate assigns ${contents(lease.reservations)} at the start.`;
}

function oneType(type, list, me, isPast) {
  const isHost = type === "physical:host";
  const isTimed = list.some((item) => item.ready_at);
  const columns = [isHost ? "Host" : "Name", isPast ? null : "State", "What it has", ...(isTimed ? ["Ready at"] : [])];
  const head = h("thead", {}, h("tr", {}, columns.filter(Boolean).map((text) =>
    h("th", { scope: "col", class: text === "What it has" ? "optional" : null }, text))));
  const body = h("tbody", {}, list.map((item, index) => row(item, me, { isHidden: index >= SHOWN, isTimed, isPast })));
  const more = list.length > SHOWN ? button(`Show all ${list.length}`, (event) => {
    for (const line of body.children) line.hidden = false;
    event.target.remove();
  }, { kind: "link" }) : null;
  return h("div", { class: "resources" }, h("h2", {}, isPast ? `${typeTitle(type)} that it had` : typeTitle(type)),
    h("div", { class: "table" },
      h("table", {}, h("caption", { class: "visually-hidden" }, typeTitle(type)), head, body)), more);
}

function row(item, me, { isHidden, isTimed, isPast }) {
  const hasShare = Object.keys(item.amounts || {}).length > 0;
  const at = item.ready_at ? new Date(item.ready_at) : null;
  const title = me.allowed["resources:get"]
    ? link(`/console/resources/${encodeURIComponent(item.id)}`, name(item.name), { "data-focus": `r-${item.id}` })
    : name(item.name);
  return h("tr", { hidden: isHidden, "data-resource": item.id },
    h("th", { scope: "row" }, title),
    isPast ? null : h("td", {}, resourceState(item.state),
      item.handed_over === false ? h("small", { class: "quiet line" }, "not handed over yet") : null),
    h("td", { class: "optional" }, name(propertyWords(item.properties)),
      hasShare ? h("small", { class: "quiet line" }, `Of it ${shareWords(item.amounts)}`) : null),
    isTimed ? h("td", {}, at ? h("time", { datetime: item.ready_at, title: moment(at) }, shortMoment(at)) : null)
      : null);
}

function ready(readiness) {
  if (!readiness?.hosts || readiness.state === "ready") return null;
  const reasons = readiness.reasons?.length ? ` ${readiness.reasons.join("; ")}` : "";
  return h("p", { class: "quiet" }, `${readiness.ready} of ${readiness.hosts} hosts are ready.${reasons}`);
}
