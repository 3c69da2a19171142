// The states of reserving, and what may follow what. Pure: `reserve.js` carries out the effects.

import { isSame } from "./selection.js";

/**
 * @typedef {object} State
 * @property {"idle"|"drawing"|"resting"|"sending"|"unknown"|"done"} phase drawing: a pointer is down;
 *   unknown: the request may or may not have been carried out; done: the answer was yes
 * @property {import("./selection.js").Selection|null} selection
 * @property {import("./request.js").Verdict|null} verdict of exactly this selection; null: not checked yet
 * @property {{letter: string, start: number, end: number}[]} windows other windows to choose from
 * @property {string|null} focused the letter of the alternative whose ghost is drawn
 * @property {boolean} watching the check is repeated until it fits
 * @property {number|null} takenAt when a selection that had fitted was taken (ms)
 * @property {string} note a sentence about what has changed
 * @property {{key: string, method: string, path: string, body: object}|null} request under way
 * @property {object|null} result the lease of the answer
 */

const FITS_NOW = "It fits now."; // said when watching has ended with success

/** Nothing is selected. @type {State} */
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

/** The state after `event`; the same object if the event changes nothing. */
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
    return state.phase === "resting" || state.phase === "unknown" ? { ...state, phase: "sending", request, note: "" } : state;
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
    return { ...state, selection: { ...state.selection, ...moved, lease, amount: amount ?? state.selection.amount }, verdict: null, note };
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
