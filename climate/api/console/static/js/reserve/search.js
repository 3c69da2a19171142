// The search for the soonest windows, from the bar.

import { noun } from "../lease/words.js";
import { spell } from "../time.js";
import { firstOf, isLocked } from "./selection.js";

const AHEAD = 28; // days that a search covers
const FURTHER = 180;

/** Select the first window that has what the bar names, and offer the next ones. `begin` makes the selection. */
export async function findSoonest(core, days, begin, openForm) {
  const { bar, view, type } = core;
  if (core.blocked()) return bar.note(core.blocked());
  if (isLocked(core.state)) return undefined;
  const { duration, amount } = view.state;
  const wanted = begin(duration * 1000);
  bar.setBusy(true);
  const { windows, verdict } = await core.service.soonest(wanted, type, duration, days ?? AHEAD);
  bar.setBusy(false, core.blocked());
  if (verdict) return showProblem(core, verdict, openForm);
  if (!windows.length) {
    return showNone(core, { amount, duration, days: days ?? AHEAD }, () => findSoonest(core, FURTHER, begin, openForm));
  }
  core.touch = matchMedia("(pointer: coarse)").matches;
  const selection = { ...wanted, ...firstOf(windows[0], core.times.now) };
  core.dispatch({ type: "select", selection, windows });
  view.revealTime(selection.start, selection.end);
  core.card.focus();
  return undefined;
}

function showNone({ bar, type, view }, { amount, duration, days }, further) {
  const { reservable: count } = view.data;
  if (type === "physical:host" && count !== null && count < amount) {
    return bar.note(`Only ${count} ${noun(type, count)} match what you wrote, and you need ${amount}.`);
  }
  const things = `${amount} matching ${noun(type, amount)}`;
  return bar.note(`No window of ${spell(duration * 1000)} in the next ${days} days has ${things}.`,
    days < FURTHER ? [`Look ${FURTHER} days ahead`, further] : null);
}

function showProblem({ bar, type }, verdict, openForm) {
  if (verdict.kind === "form") {
    return bar.note(`${noun(type, 2)} need more than a number.`, ["Open the form", openForm]);
  }
  if (verdict.code === "invalid_query") return bar.complain(verdict.detail);
  return bar.note(verdict.detail);
}
