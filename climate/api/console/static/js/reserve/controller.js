// Reserves in the calendar: connects selection, card, bar, gestures and service.

import { requestKey } from "../api.js";
import { level } from "../calendar/scale.js";
import { announce, debounce } from "../dom.js";
import { serverNow } from "../time.js";
import { Acts } from "./acts.js";
import { Card } from "./card.js";
import { Bar, Gestures, Handles } from "./gestures.js";
import { ghostsOf, IDLE, isLocked, isOpen, isSame, isUnchanged, overlaps, overlayOf, reduce } from "./selection.js";
import { Checker, differences, formAddress, Service } from "./service.js";
import { changeSentence, nextName, spoken } from "./wording.js";

const ANNOUNCE = 250; // ms at rest until a selection is announced
const NAME = "climate-last-name-"; // and the id of the user

export class Reserve {
  #timers = new Set();
  #ends = new AbortController();
  #finding = null;

  constructor(view, { bar, layer, context }) {
    this.view = view;
    this.layer = layer;
    this.context = context;
    this.state = IDLE;
    this.rows = []; // the rows of the lease that changes
    this.touch = false;
    this.offline = false;
    this.service = new Service();
    this.acts = new Acts(this);
    this.card = new Card(this.acts.cardEvents());
    this.bar = new Bar(this.acts.barEvents());
    this.handles = new Handles(view, this.acts.handleEvents());
    this.gestures = new Gestures(view, this.acts.pointerEvents());
    this.checker = new Checker((selection, signal) => this.service.check(selection, this.type, signal),
      (selection, verdict) => this.#checked(selection, verdict));
    this.say = debounce(() => this.#say(), ANNOUNCE);
    bar.append(this.bar.element);
    layer.append(this.card.element, ...this.handles.elements);
    this.#listen();
    this.bar.show(view.state);
  }

  get type() {
    return this.view.state.resourceType;
  }

  /** Now by the server's clock, and the step of the zoom, in ms. */
  get times() {
    return { now: serverNow().getTime(), step: Math.min(level(this.view.state.zoom).snap, 86_400_000) };
  }

  may(rule) {
    return this.context.me.allowed?.[rule] === true;
  }

  detach() {
    this.#ends.abort();
    this.gestures.detach();
    this.checker.cancel();
    this.say.cancel();
    for (const timer of this.#timers) clearInterval(timer);
    this.view.setOverlay(null);
    this.card.element.remove();
    this.bar.element.remove();
    for (const handle of this.handles.elements) handle.remove();
  }

  #listen() {
    const { signal } = this.#ends;
    const on = (name, handler) => this.view.addEventListener(name, handler, { signal });
    on("viewchange", () => this.place());
    on("rest", () => this.place());
    on("datachange", (event) => this.#dataChanged(event.detail));
    on("statechange", () => this.#viewState());
    on("activate", (event) => this.acts.activate(event));
    on("gridkey", (event) => this.acts.key(event));
    on("find", () => this.bar.focusFilter());
    this.view.element.addEventListener("pointerdown", () => this.bar.note(""), { signal });
    addEventListener("resize", () => this.place(), { signal });
    document.addEventListener("connection", ({ detail }) => this.#connection(detail.up), { signal });
    const timer = setInterval(() => this.state.takenAt && this.card.tick(Date.now(), this.state.takenAt), 1000);
    this.#timers.add(timer);
  }

  dispatch(event) {
    const before = this.state;
    const after = reduce(before, event);
    if (after === before) return;
    this.state = after;
    this.#follow(before, after);
  }

  restore(state) {
    const before = this.state;
    this.state = state;
    this.#follow(before, state);
  }

  #follow(before, after) {
    const changed = !isSame(before.selection, after.selection);
    if (!after.selection) this.#forget();
    else if (isOpen(after) && !after.verdict && (changed || before.verdict || before.phase === "idle")) {
      this.#check(after.selection);
    }
    if (isLocked(after)) this.checker.cancel();
    this.draw();
    if (after.selection && (changed || before.verdict !== after.verdict)) this.say();
    if (after.focused && after.focused !== before.focused) this.#findRows(after.focused);
  }

  #check(selection) {
    if (isUnchanged(selection)) return this.checker.cancel();
    return this.checker.request(selection);
  }

  checkNow() {
    const { selection } = this.state;
    if (selection && isOpen(this.state) && !isUnchanged(selection)) this.checker.request(selection, { now: true });
  }

  #forget() {
    this.checker.cancel();
    this.say.cancel();
    this.rows = [];
  }

  draw() {
    const { state, view } = this;
    this.overlay = overlayOf(state, { narrow: isNarrow(), rows: this.rows });
    view.setOverlay(state.phase === "done" && !this.waiting ? null : this.overlay);
    const visible = state.selection && state.phase !== "drawing";
    if (visible && state.phase !== "done" && state.selection.purpose === "new") this.card.propose(this.#proposal());
    this.card.show(visible ? { state, type: this.type, session: this.#session() } : null);
    this.layer.classList.toggle("has-card", Boolean(visible));
    this.place();
  }

  #session() {
    return { now: Date.now(), blocked: this.blocked() };
  }

  blocked() {
    if (!this.may("leases:post")) return "Your role does not allow reserving.";
    return this.offline ? "The service does not answer, so reserving has to wait." : "";
  }

  place() {
    const { state, overlay, layer, card } = this;
    if (!overlay || card.element.hidden) return this.handles.place(null);
    const box = this.view.anchor(overlay);
    const frame = layer.getBoundingClientRect();
    const open = state.phase === "resting" && this.touch;
    this.handles.place(open ? box : null, frame, { hasStart: !(state.selection.purpose === "change"
      && state.selection.lease.start <= this.times.now) });
    if (isNarrow()) return this.#dock(box);
    card.element.style.maxHeight = "";
    const view = this.view.element.getBoundingClientRect();
    const bounds = { left: Math.max(view.left, 8) + 8, right: Math.min(view.right, innerWidth) - 20,
      top: Math.max(view.top, 64), bottom: Math.min(innerHeight - 8, Math.max(view.bottom, view.top + 300)) };
    const size = { width: card.element.offsetWidth, height: card.element.offsetHeight };
    const avoid = ghostsOf(state).map(({ start, end }) => ({ left: this.view.xOf(start), right: this.view.xOf(end),
      weight: 1 }));
    avoid.push({ left: view.left, right: view.left + this.view.size.left, weight: 0.5 });
    const { left, top } = placeCard(size, box, bounds, { place: overlay.place, avoid });
    card.element.style.left = `${Math.round(left - frame.left)}px`;
    card.element.style.top = `${Math.round(top - frame.top)}px`;
    return undefined;
  }

  // The sheet leaves the selection in sight, if that leaves room for the sheet.
  #dock(box) {
    const { style } = this.card.element;
    const room = innerHeight - box.bottom - 8;
    style.left = "";
    style.top = "";
    style.maxHeight = room > innerHeight * 0.4 ? `${Math.round(room)}px` : "";
  }

  #checked(selection, verdict) {
    if (verdict.kind === "changed") return this.rebase();
    if (verdict.code === "invalid_query") this.bar.complain(verdict.detail);
    return this.dispatch({ type: "checked", selection, verdict, at: Date.now() });
  }

  #dataChanged({ windows, loaded }) {
    if (loaded) {
      if (this.waiting) this.#arrived();
      const error = this.view.data?.error;
      if (error?.code === "invalid_query") this.bar.complain(error.detail);
      return;
    }
    const { selection, watching } = this.state;
    if (!selection || !isOpen(this.state)) return;
    if (watching || windows.some((window) => overlaps(window, selection))) this.checkNow();
  }

  #arrived() {
    this.waiting = false;
    if (this.state.phase === "done") this.draw();
  }

  #viewState() {
    const { resourceType } = this.view.state;
    if (this.shownType && this.shownType !== resourceType) this.dispatch({ type: "discard" });
    this.shownType = resourceType;
    this.bar.show(this.view.state);
  }

  #connection(up) {
    if (up === !this.offline) return;
    this.offline = !up;
    this.bar.setBusy(false, this.blocked());
    if (up) this.checkNow();
  }

  #say() {
    const { selection, verdict, note } = this.state;
    if (selection && isOpen(this.state)) announce(`${note} ${spoken(selection, verdict, this.type)}`.trim());
  }

  async submit() {
    const { state, card, type } = this;
    const { selection } = state;
    if (state.phase === "unknown") return this.retry();
    if (state.phase !== "resting" || this.blocked() || isUnchanged(selection)) return;
    if (selection.purpose === "new" && !card.name) return card.complain("Give the lease a name.");
    const request = await this.service.request(selection, type, card.name);
    if (this.state.selection !== selection || this.state.phase !== "resting") return;
    if (!request) return this.openForm();
    if (request.method === "POST") request.headers = { ...request.headers, "Idempotency-Key": requestKey() };
    await this.#send(request);
  }

  async #send(request) {
    this.dispatch({ type: "send", request });
    const { lease, verdict, unknown } = await this.service.send(request);
    if (lease) return this.#done(lease);
    this.dispatch({ type: "failed", verdict, unknown, at: Date.now() });
    if (unknown) announce("It is not known whether the service carried this out.");
    if (verdict.kind === "changed") await this.rebase();
    return undefined;
  }

  #done(lease) {
    const { selection } = this.state;
    const { type } = this;
    this.waiting = true;
    this.dispatch({ type: "answered", lease });
    if (selection.purpose === "new") {
      remember(NAME + this.context.me.user.id, lease.name);
      this.card.forgetName();
    }
    const area = selection.place === "band" ? "band" : "row";
    this.view.grid.focusHit({ area, row: selection.rows[0], time: lease.start });
    this.view.refresh();
    const made = spoken({ ...selection, start: lease.start, end: lease.end }, null, type);
    announce(`${selection.purpose === "new" ? "Reserved" : "Changed"}: ${lease.name}, ${made}`);
  }

  async retry() {
    const { state } = this;
    if (state.phase !== "unknown") return this.checkNow();
    const { request, selection } = state;
    if (selection.purpose === "new") return this.#send(request);
    const { lease } = await this.service.lease(selection.lease.id);
    if (this.state !== state) return undefined;
    if (!lease) return this.#send(request);
    const made = lease.end === selection.end && (selection.fromNow || lease.start === selection.start);
    this.dispatch({ type: "send", request });
    if (made) return this.#done(lease);
    return this.#send({ ...request, headers: lease.etag ? { "If-Match": lease.etag } : {} });
  }

  async rebase() {
    const { selection } = this.state;
    if (selection?.purpose !== "change") return;
    const { lease, amount, verdict } = await this.service.lease(selection.lease.id);
    if (this.state.selection?.lease?.id !== selection.lease.id || isLocked(this.state)) return;
    if (!lease) {
      this.dispatch({ type: "checked", selection: this.state.selection, verdict, at: Date.now() });
      return;
    }
    const keys = selection.lease.etag ? differences(selection.lease, lease)
      : differences(selection.lease, lease).filter((key) => key === "start" || key === "end");
    const note = changeSentence(selection.lease, lease, keys);
    this.dispatch({ type: "rebased", lease, amount, note });
    if (note) this.view.refresh();
    this.checkNow();
  }

  async findRows(id) {
    const rows = await this.service.resourcesOf(id);
    if (this.state.selection?.lease?.id !== id || !rows.length) return;
    this.rows = rows;
    this.draw();
  }

  // The alternative names no rows: a dry run of it does.
  async #findRows(letter) {
    const { selection, verdict } = this.state;
    const alternative = verdict?.alternatives?.find((each) => each.letter === letter);
    if (!alternative || alternative.rows || selection.purpose === "change") return;
    this.#finding?.abort();
    this.#finding = new AbortController();
    const next = this.acts.alternative(selection, alternative);
    try {
      const found = await this.service.check(next, this.type, this.#finding.signal);
      if (this.state.selection !== selection || found.kind !== "fits") return;
      const rows = found.resources.map(({ id }) => id).slice(0, 200);
      this.dispatch({ type: "rows", letter, rows });
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
  }

  openForm(waits = false) {
    const { selection } = this.state;
    if (selection) this.context.navigate(formAddress(selection, { type: this.type, name: this.card.name, waits }));
  }

  #proposal() {
    const { id, name } = this.context.me.user;
    let last = null;
    try {
      last = localStorage.getItem(NAME + id);
    } catch {
      // Storage is blocked: names start anew.
    }
    return nextName(last, name || id);
  }
}

function isNarrow() {
  return matchMedia("(max-width: 720px)").matches;
}

function remember(key, name) {
  try {
    localStorage.setItem(key, name);
  } catch {
    // Storage is blocked: the next name is made from the user's.
  }
}

// Where the card goes

const GAP = 10;

function placeCard(card, anchor, bounds, { place, avoid }) {
  const top = clamp(place === "band" ? anchor.bottom + GAP : anchor.top, bounds.top,
    Math.max(bounds.top, bounds.bottom - card.height));
  const last = Math.max(bounds.left, bounds.right - card.width);
  const furthest = Math.max(anchor.right, ...avoid.map(({ right }) => right).filter((x) =>
    x < bounds.right - card.width));
  const beside = [anchor.left - GAP - card.width, anchor.right + GAP, furthest + GAP, bounds.left, last,
    (anchor.left + anchor.right - card.width) / 2];
  const candidates = beside.map((left, rank) => ({ left: clamp(left, bounds.left, last), rank }));
  const columns = [{ left: anchor.left, right: anchor.right, weight: 2 }, ...avoid];
  const costs = candidates.map(({ left, rank }) => rank + 10 * columns.reduce((sum, column) => sum
    + column.weight * covered(left, card.width, column), 0));
  return { left: candidates[costs.indexOf(Math.min(...costs))].left, top };
}

function covered(left, width, column) {
  const size = Math.max(1, column.right - column.left);
  return Math.max(0, Math.min(left + width, column.right) - Math.max(left, column.left)) / size;
}

function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}
