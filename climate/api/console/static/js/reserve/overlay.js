// What the calendar draws for a state: selection, refusal, alternatives. Pure.

import { bandLabel, span, spell } from "./wording.js";

/**
 * @param {import("./machine.js").State} state
 * @param {{narrow: boolean, rows: string[]}} options `rows`: ids of all rows of the lease that changes
 * @returns {object|null} the argument of `CalendarView.setOverlay`
 */
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
  if (verdict) return bandLabel(verdict, selection, narrow);
  const length = spell(selection.end - selection.start);
  return narrow ? length : `${span(selection)}, ${length}`;
}
