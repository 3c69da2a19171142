// What the owner does with a lease: prolong, change, end, delete. Refusals as offers of what would fit.

import { api } from "../api.js";
import {
  announce, button, clearErrors, confirm, debounce, dialog, field, filledIn, form as formOf, h, momentField, name,
  plain, problemNote, replace,
} from "../dom.js";
import { duration, iso, moment, range, utc, utcRange } from "../time.js";
import { reservationFields, waitBody, waitFields } from "./fields.js";
import { refusal } from "./refusals.js";
import { differences, label, note, stackedTime, typeTitle } from "./words.js";

const HOUR = 3600_000;

function send(view, body, etag = view.etag) {
  return api("PATCH", `/v2/leases/${view.lease.id}`, { body, headers: { "If-Match": etag } });
}

async function dryRun(view, body, signal) {
  return (await api("PATCH", `/v2/leases/${view.lease.id}?dry_run=true`, { body, signal })).body;
}

function changeDialog(view, { title, action, fields, read, choose, wide = false }) {
  const result = h("div", { class: "check-result", role: "status" });
  const conflictNote = h("div", { role: "alert" });
  let base = { lease: view.lease, etag: view.etag }; // the state that the user has seen
  let aborter = new AbortController();
  const check = debounce(async () => {
    aborter.abort();
    aborter = new AbortController();
    const body = read();
    if (!body || !Object.keys(body).length) return replace(result);
    try {
      replace(result, h("p", { class: "fits" }, fitText(await dryRun(view, body, aborter.signal))));
    } catch (error) {
      if (error.name !== "AbortError") showRefusal(error, body);
    }
    return null;
  }, 300);
  function showRefusal(error, body) {
    const start = body.start && body.start !== "now" ? body.start : base.lease.start;
    const window = { start: new Date(start), end: new Date(body.end || base.lease.end) };
    const pick = (alternative) => { choose(alternative); check(); };
    replace(result, refusal(error, { ...window, reservations: base.lease.reservations, choose: pick }));
  }
  async function conflict() {
    await view.reload();
    replace(conflictNote, changedNote(base.lease, view.lease));
    base = { lease: view.lease, etag: view.etag };
    check();
  }
  async function submit(event) {
    event.preventDefault();
    clearErrors(form);
    const body = read();
    if (!filledIn(form) || !body || yes.disabled) return;
    if (!Object.keys(body).length) {
      box.close();
      return;
    }
    check.cancel();
    aborter.abort();
    yes.disabled = true;
    try {
      await send(view, body, base.etag);
      box.close();
      announce(`${title}: done.`);
      await view.reload();
    } catch (error) {
      if (error.status === 412) await conflict();
      else if (error.status) showRefusal(error, body);
      else replace(result, problemNote(error));
    }
    yes.disabled = false;
  }
  const yes = h("button", { type: "submit", class: "button primary" }, action);
  const form = h("form", { class: "stack", novalidate: true, onsubmit: submit, oninput: check, onchange: check },
    fields, conflictNote, result, h("div", { class: "actions" }, yes, button("Cancel", () => box.close())));
  const box = dialog({ title, content: form, wide, onClose: () => { check.cancel(); aborter.abort(); } });
  return { check, box };
}

function changedNote(before, after) {
  const list = differences(before, after).map(([what, one, other]) =>
    h("li", {}, `${what}: `, name(shown(one)), " is now ", name(shown(other)), "."));
  return note("care", "warning", h("p", { class: "strong" }, "The lease has changed since you opened this."),
    h("ul", {}, list), h("p", {}, "Your change is not made yet. Check it and send it again."));
}

function shown(text) {
  return /^\d{4}-\d\d-\d\dT/.test(text) ? moment(new Date(text)) : text;
}

function fitText({ lease }) {
  const [start, end] = [new Date(lease.start), new Date(lease.end)];
  return `This fits: ${range(start, end)}, ${utcRange(start, end)}.`;
}

/** Prolong: a new end, with the latest end that the service would admit. */
export function prolong(view) {
  const start = new Date(view.lease.end);
  const end = momentField("New end", { date: new Date(start.getTime() + HOUR), required: true });
  const limit = h("p", { class: "quiet", role: "status" }, "Looking for the latest end.");
  const add = (hours) =>
    button(`+ ${duration(hours * 3600)}`, () => set(new Date((end.read() || start).getTime() + hours * HOUR)));
  const set = (date) => { end.set(date); control.check(); };
  const read = () => end.read() && { end: iso(end.read()) };
  const control = changeDialog(view, {
    title: "Prolong the lease", action: "Prolong", read, choose: (alternative) => set(new Date(alternative.end)),
    fields: [h("p", {}, "It ends ", stackedTime(view.lease.end)), limit, end.element,
      h("div", { class: "actions", role: "group", "aria-label": "Add to the end" }, add(1), add(4), add(24))],
  });
  control.check();
  showLatest(view, limit, set);
}

async function showLatest(view, place, set) {
  try {
    const found = await latestOf(view);
    const take = found.end && button("Take this end", () => set(found.end), { kind: "link" });
    replace(place, latestWords(found), " ", take);
  } catch (error) {
    replace(place, plain(error.detail || "The latest end is not known."));
  }
}

/** The latest end that the lease can have now. */
export function latestOf(view) {
  return latestEnd(view.lease, (end) => dryRun(view, { end: iso(end) }));
}

/** What `latestOf` found, as a sentence. */
export function latestWords({ end, isBound, reason }) {
  if (!end) return `It cannot be prolonged. ${plain(reason)}`;
  return h("span", {}, isBound ? "It can be prolonged until " : "It can be prolonged until at least ",
    h("b", {}, moment(end)), ", ", utc(end), ".");
}

/** Change: name, dates and the amounts of the reservations. */
export async function change(view, types) {
  const { lease } = view;
  const started = ["ACTIVE", "ERROR"].includes(lease.status);
  const title = h("input", { name: "name", required: true, maxlength: 80, value: lease.name });
  const start = momentField("Start", { date: new Date(lease.start), required: true });
  const end = momentField("End", { date: new Date(lease.end), required: true });
  const parts = lease.reservations.filter(({ status }) => status !== "deleted").map((reservation) => ({
    reservation, fields: reservationFields(types, reservation.resource_type, reservation.params, { isChange: true }),
  }));
  const read = () => changes(lease,
    { name: title.value, start: started ? null : start.read(), end: end.read() }, parts);
  const choose = (alternative) => {
    if (!started) start.set(new Date(alternative.start));
    end.set(new Date(alternative.end));
    if (alternative.differs === "fewer") parts.find(({ fields }) => fields.setAmount(alternative.amount));
  };
  changeDialog(view, {
    title: "Change the lease", action: "Change", read, choose, wide: true,
    fields: [field("Name", title), h("div", { class: "fields" }, started ? null : start.element, end.element),
      parts.map(({ fields }) => fields.element)],
  });
}

function changes(lease, { name: title, start, end }, parts) {
  if (!end) return null;
  const body = {};
  if (title !== lease.name) body.name = title;
  const isMoved = (date, text) => date && Math.floor(date.getTime() / 60_000) !== Math.floor(Date.parse(text) / 60_000);
  if (isMoved(start, lease.start)) body.start = iso(start);
  if (isMoved(end, lease.end)) body.end = iso(end);
  const reservations = parts.map(({ reservation, fields }) => ({ id: reservation.id, params: fields.changed() }))
    .filter(({ params }) => Object.keys(params).length);
  if (reservations.length) body.reservations = reservations;
  return body;
}

/** Change how long a lease waits for capacity, and how urgently. */
export function changeWait(view) {
  const { until, priority } = view.lease.waiting;
  const fields = waitFields({ until: new Date(until), priority, required: true });
  const content = formOf(fields.elements, "Change", async () => {
    await send(view, { wait: waitBody(fields.read()) });
    box.close();
    await view.reload();
  }, { locate: (_, path) => fields.locate[path.at(-1)] });
  const box = dialog({ title: "Change the wait", content });
}

/** The place of a lease in the wait list, as pairs. */
export function waitPart({ status, waiting }) {
  if (!waiting) return null;
  const pair = (what, value) => value === null ? null : [h("dt", {}, what), h("dd", {}, value)];
  const time = (value) => value && stackedTime(value);
  const isWaiting = status === "WAITING";
  const reasons = { limit: "by a limit of your project or of you", no_window: "it fits nowhere in time",
    error: "climate could not decide; your operator finds out why" };
  return [h("h2", {}, "Wait list"), h("dl", { class: "pairs", id: "wait" },
    pair("Position", String(waiting.position)), pair("Promised start", time(waiting.promised_start)),
    isWaiting ? [pair("Expected start", time(waiting.expected_start)), pair("Waits until", time(waiting.until))] : null,
    pair("Priority", String(waiting.priority)),
    pair("Held back", waiting.held_back && (reasons[waiting.held_back] ?? waiting.held_back))),
  h("p", { class: "hint" }, waiting.promised_start ? "climate books an earlier start if others end early."
    : "The expected start is the earliest one beside the present bookings.")];
}

/** The reservations that users start and stop, each with its state and a button. */
export function startPart(view) {
  const { lease, context: { me } } = view;
  const manual = lease.reservations.filter((item) => item.run_state && item.status !== "deleted");
  if (!manual.length || lease.status !== "ACTIVE") return null;
  const act = (item, verb) => me.allowed[`reservations:${verb}`]
    && button(`${label(verb)} ${typeTitle(item.resource_type)}`, () => setRunning(view, item, verb));
  return [h("h2", {}, "Start and stop"),
    h("p", { class: "hint" }, "climate creates what you start, and deletes what you stop."),
    h("dl", { class: "pairs" }, manual.map((item) => [h("dt", {}, typeTitle(item.resource_type)),
      h("dd", { class: "actions" }, label(item.run_state), item.run_state === "stopped" ? act(item, "start") : null,
        item.run_state.startsWith("start") ? act(item, "stop") : null)]))];
}

async function setRunning(view, { id, resource_type: type }, verb) {
  const question = { title: `Stop ${typeTitle(type)}?`, action: "Stop", danger: true,
    text: "climate deletes them with their data." };
  if (verb === "stop" && !(await confirm(question))) return;
  await attempt(view, () => api("POST", `/v2/leases/${view.lease.id}/reservations/${id}/${verb}`), "");
}

/** End the lease now, after a question. */
export async function endNow(view) {
  const question = { title: "End the lease now?", action: "End now", danger: true,
    text: h("span", {}, "climate reclaims the resources of ", name(view.lease.name),
      " at once. What runs on them is lost.") };
  if (await confirm(question)) await attempt(view, () => send(view, { end: "now" }), "The lease ends.");
}

/** Delete the lease, after a question. */
export async function remove(view, leave) {
  const isRunning = view.lease.status === "ACTIVE";
  const text = isRunning ? "climate reclaims its resources first. What runs on them is lost."
    : "This cannot be undone.";
  const question = { title: ["Delete ", name(view.lease.name), "?"], action: "Delete", danger: true, text };
  if (!(await confirm(question))) return;
  const headers = { "If-Match": view.etag };
  await attempt(view, async () => {
    const { status } = await api("DELETE", `/v2/leases/${view.lease.id}`, { headers });
    announce(status === 202 ? "climate ends the lease before it deletes it." : "The lease is deleted.",
      { visible: true });
    if (status === 204) leave();
  });
}

async function attempt(view, action, text) {
  const before = view.lease;
  try {
    await action();
    if (text) announce(text);
    view.say(null);
    if (view.isShown()) await view.reload();
  } catch (error) {
    await view.reload();
    view.say(error.status === 412 ? changedNote(before, view.lease) : problemNote(error));
  }
}

// The latest end that a lease can have

const DAY = 86400_000;
const FURTHEST = 30 * DAY;
const MOST = 12; // dry runs
const EXACT = 300_000; // ms

async function latestEnd(lease, check) {
  const present = Date.parse(lease.end);
  let [low, high, reason] = [present, present + FURTHEST, ""];
  let next = high;
  for (let count = 0; count < MOST && next > low; count += 1) {
    const problem = await refused(check, new Date(next));
    if (!problem) {
      low = next;
      if (next === present + FURTHEST) return { end: new Date(low), isBound: false, reason: "" };
    } else {
      high = next;
      reason = reasonOf(problem);
    }
    next = candidate(low, high, problem, present);
    if (next === null) break;
  }
  if (low <= present) return { end: null, isBound: true, reason };
  return { end: new Date(low), isBound: true, reason };
}

function reasonOf({ code, detail }) {
  return code === "not_enough_resources" ? "Other leases have its resources after its end." : detail;
}

/** The next end to check, in ms. */
function candidate(low, high, problem, present) {
  const hints = [];
  const { alternatives = [], blocked_by: blocked = [] } = problem?.body || {};
  for (const item of alternatives) if (item.differs === "shorter") hints.push(Date.parse(item.end));
  for (const item of blocked) hints.push(Date.parse(item.start));
  if (hints.includes(low)) return null; // What is in the way begins there.
  const fitting = hints.filter((time) => time > Math.max(low, present) && time < high);
  if (fitting.length) return Math.max(...fitting);
  if (high - low <= EXACT) return null;
  return Math.floor((low + high) / 2 / 60_000) * 60_000;
}

async function refused(check, end) {
  try {
    await check(end);
    return null;
  } catch (error) {
    if (error.status >= 400 && error.status < 500 && error.status !== 412 && error.status !== 429) return error;
    throw error;
  }
}
