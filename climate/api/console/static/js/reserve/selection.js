// Selections and the states of a reservation in the making. Pure functions.

import { span, spell } from "../time.js";
import { bandLabel } from "./wording.js";


const MINUTE = 60_000;

export function begin({ place, rows = [], time, length, amount, properties = null, tapped = false }, { now, step }) {
  const start = Math.max(time, minute(now));
  return window_({
    purpose: "new", place, rows, amount: place === "rows" ? rows.length : amount, properties, lease: null, part: null,
      tapped,
    anchor: start, start, end: start + (length || step), fromNow: false,
  }, start, start + (length || step), now);
}

export function beginChange(lease, part, { place, rows = [], amount = rows.length, now }) {
  const anchor = part === "end" ? lease.start : lease.end;
  return { purpose: "change", place, rows, amount, properties: null, lease, part, tapped: false, anchor,
    start: lease.start, end: lease.end, fromNow: lease.start <= now && !hasStarted(lease, now) };
}

/** Whether the lease has begun, so that its start cannot change. */
export function hasStarted(lease, now) {
  return lease.start <= now || !["PENDING", "pending"].includes(lease.status ?? "PENDING");
}

export function canChange(lease, part, now) {
  if (lease.end <= now || ["TERMINATED", "DELETING", "TERMINATING", "STARTING"].includes(lease.status)) return false;
  return part === "end" || !hasStarted(lease, now);
}

/** The selection between its anchor and `time`: at least one step long. */
export function stretched(selection, time, { now, step }) {
  if (time >= selection.anchor) return window_(selection, selection.anchor, Math.max(time, selection.anchor + step),
    now);
  return window_(selection, Math.min(time, selection.anchor - step), selection.anchor, now);
}

export function startMoved(selection, delta, { now, step }) {
  if (isStartFixed(selection, now)) return selection;
  const start = Math.min(Math.max(selection.start + delta, minute(now)),
    selection.end - Math.min(step, selection.end - selection.start));
  return { ...window_(selection, start, selection.end, now), anchor: selection.end };
}

export function endMoved(selection, delta, { now, step }) {
  const first = Math.max(selection.start, minute(now)) + Math.min(step, selection.end - selection.start);
  return { ...window_(selection, selection.start, Math.max(selection.end + delta, first), now),
    anchor: selection.start };
}

export function moved(selection, delta, { now }) {
  if (isStartFixed(selection, now)) return selection;
  const start = Math.max(selection.start + delta, minute(now));
  return { ...window_(selection, start, start + selection.end - selection.start, now), anchor: start };
}

export function movedTo(selection, start, context) {
  return moved(selection, start - selection.start, context);
}

export function fromNow(selection, { now }) {
  if (isStartFixed(selection, now)) return selection;
  const start = minute(now);
  return window_(selection, start, Math.max(selection.end, start + MINUTE), now);
}

export function withWindow(selection, start, end, { now }) {
  if (!Number.isFinite(start) || !Number.isFinite(end) || end <= start || end <= now) return null;
  const first = isStartFixed(selection, now) ? selection.start : start;
  return window_(selection, first, end, now);
}

export function withAmount(selection, amount) {
  if (selection.place === "rows" || selection.purpose === "change") return selection;
  return { ...selection, amount: Math.max(1, Math.trunc(amount) || 1) };
}

export function withRows(selection, rows) {
  if (selection.place !== "rows" || selection.purpose === "change" || !rows.length) return selection;
  const sorted = [...rows].sort((a, b) => a.index - b.index);
  return { ...selection, rows: sorted, amount: sorted.length };
}

export function ofAlternative(selection, { differs, start, end, amount }, { now }) {
  const next = { ...window_(selection, start, end, now), tapped: false, anchor: start };
  if (differs === "other") return { ...next, place: "band", rows: [], properties: null, amount };
  // Fewer of certain rows: whichever of them are free. The request names all rows and the smaller amount.
  return differs === "fewer" ? { ...next, amount } : next;
}

/** Whether both select the same, so that a verdict about one holds for the other. */
export function isSame(a, b) {
  if (!a || !b) return a === b;
  const keys = ["purpose", "place", "start", "end", "amount", "part", "fromNow"];
  return keys.every((key) => a[key] === b[key]) && a.lease?.id === b.lease?.id
    && a.rows.map((row) => row.id).join() === b.rows.map((row) => row.id).join()
    && JSON.stringify(a.properties) === JSON.stringify(b.properties);
}

/** Whether the selection is where its lease is already. */
export function isUnchanged({ purpose, start, end, lease }) {
  return purpose === "change" && start === lease.start && end === lease.end;
}

/** Whether two windows have an instant in common. */
export function overlaps(a, b) {
  return a.start < b.end && b.start < a.end;
}

/** The start of the minute of `time`: the earliest start that the service takes. */
export function minute(time) {
  return Math.floor(time / MINUTE) * MINUTE;
}

function isStartFixed(selection, now) {
  return selection.purpose === "change" && hasStarted(selection.lease, now);
}

function window_(selection, start, end, now) {
  if (isStartFixed(selection, now)) return { ...selection, start: selection.lease.start,
    end: Math.max(end, minute(now) + MINUTE) };
  const first = Math.max(start, minute(now));
  // A start within this minute is past before the request is answered: such a lease starts "now".
  return { ...selection, start: first, end: Math.max(end, first + MINUTE), fromNow: first < now + MINUTE };
}

export const rowOf = ({ id, name: label, index }) => ({ id: String(id), name: label, index });

export function firstOf({ start, end }, now) {
  return { start, end, anchor: start, fromNow: start < now + 60_000 };
}

// A lease that moved by one edge and then by the other one has moved in both.
export function spread(selection, part) {
  if (selection.purpose !== "change") return null;
  const { start, end, lease } = selection;
  if (start !== lease.start && end !== lease.end) return "move";
  if (selection.part === "move") return "move";
  return part === "start" || part === "end" ? part : selection.part;
}

export function laterEnd(end, selection, last) {
  return end > selection.start ? end : last;
}

// The states of reserving, and what may follow what.


const FITS_NOW = "It fits now."; // said when watching has ended with success

export const IDLE = Object.freeze({ phase: "idle", selection: null, verdict: null, windows: [], focused: null,
  watching: false, takenAt: null, note: "", request: null, result: null });

/** Whether the selection must stay: a request about it is under way, or its outcome is unknown. */
export function isLocked({ phase }) {
  return phase === "sending" || phase === "unknown";
}

/** Whether there is a selection to check, adjust and send. */
export function isOpen({ phase }) {
  return phase === "drawing" || phase === "resting";
}

export function reduce(state, event) {
  const step = STEPS[event.type];
  return step ? step(state, event) : state;
}

const STEPS = {
  select(state, { selection, held = false, windows = [], note = "" }) {
    if (isLocked(state)) return state;
    return { ...IDLE, phase: held ? "drawing" : "resting", selection, windows, note };
  },
  adjust(state, { selection }) {
    if (!isOpen(state) || isSame(selection, state.selection)) return state;
    return { ...state, selection, verdict: null, focused: null, watching: false, takenAt: null, note: "" };
  },
  hold(state) {
    return state.phase === "resting" && state.selection ? { ...state, phase: "drawing" } : state;
  },
  release(state) {
    return state.phase === "drawing" ? { ...state, phase: "resting" } : state;
  },
  checked(state, { selection, verdict, at }) {
    if (!isOpen(state) || !isSame(selection, state.selection)) return state;
    return { ...state, ...judged(state, verdict, at) };
  },
  focus(state, { letter }) {
    return state.focused === letter ? state : { ...state, focused: letter };
  },
  rows(state, { letter, rows }) {
    if (!state.verdict?.alternatives) return state;
    const alternatives = state.verdict.alternatives.map((each) => (each.letter === letter ? { ...each, rows } : each));
    return { ...state, verdict: { ...state.verdict, alternatives } };
  },
  watch(state, { on }) {
    return isOpen(state) ? { ...state, watching: on } : state;
  },
  send(state, { request }) {
    return state.phase === "resting" || state.phase === "unknown" ? { ...state, phase: "sending", request, note: "" }
      : state;
  },
  answered(state, { lease }) {
    return state.phase === "sending" ? { ...state, phase: "done", result: lease, request: null } : state;
  },
  failed(state, { verdict, unknown, at }) {
    if (state.phase !== "sending") return state;
    if (unknown) return { ...state, phase: "unknown", verdict };
    return { ...state, phase: "resting", request: null, ...judged(state, verdict, at) };
  },
  rebased(state, { lease, amount, note }) {
    if (state.selection?.purpose !== "change" || isLocked(state)) return state;
    const part = state.selection.part;
    const moved = part === "end" ? { start: lease.start } : part === "start" ? { end: lease.end } : {};
    return { ...state, selection: { ...state.selection, ...moved, lease, amount: amount ?? state.selection.amount },
      verdict: null, note };
  },
  discard(state) {
    return state.phase === "idle" || state.phase === "sending" ? state : IDLE;
  },
};

function judged(state, verdict, at) {
  const taken = verdict.kind === "refused" && state.verdict?.kind === "fits";
  const still = verdict.kind === "refused" && state.takenAt;
  const first = verdict.alternatives?.[0]?.letter ?? null;
  const known = verdict.alternatives?.some(({ letter }) => letter === state.focused);
  return {
    verdict,
    takenAt: taken ? at : still ? state.takenAt : null,
    focused: known ? state.focused : first,
    watching: state.watching && verdict.kind !== "fits",
    note: state.watching && verdict.kind === "fits" ? FITS_NOW : taken ? "" : state.note,
  };
}

// What the calendar draws for a state

export function overlayOf(state, { narrow, rows }) {
  const { phase, selection, verdict } = state;
  if (!selection || phase === "idle") return null;
  const ids = rows.length ? rows : selection.rows.map((row) => row.id);
  return {
    kind: kindOf(state), place: selection.place, rows: ids, start: selection.start, end: selection.end,
    label: labelOf(state, narrow), tone: ["refused", "limited", "invalid"].includes(verdict?.kind) ? "bad" : "good",
    floor: floorOf(state),
    ticked: verdict?.kind === "fits" && selection.place === "band" ? verdict.resources.map(({ id }) => id) : [],
    blocked: verdict?.kind === "refused" ? verdict.blockers.map(({ start, end }) => ({ start, end })) : [],
    ghosts: ghostsOf(state),
  };
}

/** Alternatives and windows that the calendar draws: those at other times, and the focused one. */
export function ghostsOf({ phase, selection, verdict, windows, focused }) {
  if (phase !== "resting") return [];
  if (verdict?.kind === "refused") {
    return verdict.alternatives.filter(({ letter, differs }) => differs === "later" || letter === focused)
      .map(({ letter, start, end, rows = [] }) => ({ letter, start, end, rows, focused: letter === focused }));
  }
  return windows.filter(({ start, end }) => start !== selection.start || end !== selection.end)
    .map(({ letter, start, end }) => ({ letter, start, end, rows: [], focused: letter === focused }));
}

function kindOf({ phase, selection, verdict }) {
  if (verdict?.kind === "refused" || verdict?.kind === "limited") return "refused";
  if (phase === "sending" || phase === "done") return "reserving";
  return selection.purpose === "change" ? "moving" : "selection";
}

function floorOf({ selection, verdict }) {
  const counted = verdict?.kind === "fits" || verdict?.kind === "refused";
  return counted && selection.place === "band" ? verdict.free : null;
}

function labelOf({ phase, selection, verdict }, narrow) {
  if (phase === "sending") return selection.purpose === "new" ? "Reserving..." : "Changing...";
  if (phase === "unknown") return "Not known";
  if (phase === "done") return "";
  const times = phase === "drawing" && !narrow ? `${span(selection)}: ` : "";
  if (verdict) return times + bandLabel(verdict, selection, narrow);
  const length = spell(selection.end - selection.start);
  return narrow ? length : `${span(selection)}, ${length}`;
}
