// Sentences about selections and their checks. Pure but for the chosen time zone.

import { alternativeLines, refusalHeading } from "../lease/refusals.js";
import { counted, grouped, LIMITS, noun } from "../lease/words.js";
import { fields, serverNow, shortMoment, span, spell, utc, zone } from "../time.js";

/** "Wed 10:00 to Thu 06:00 UTC", or "UTC" if that is the chosen zone. */
export function utcSpan({ start, end }) {
  if (zone() === "UTC") return "UTC";
  const [first, last] = [new Date(start), new Date(end)];
  const name = (date) =>
    `${fields(date, "UTC").weekday} ${utc(date).replace(/^[A-Z][a-z]{2} /, "").replace(" UTC", "")}`;
  return `${name(first)} to ${name(last)} UTC`;
}

export function heading(selection, type) {
  if (selection.purpose === "change") return changeHeading(selection);
  const length = spell(selection.end - selection.start);
  if (selection.place === "band") return `${counted(selection.amount, type)} for ${length}`;
  if (selection.rows.length === 1) return `${selection.rows[0].name} for ${length}`;
  const all = selection.amount === selection.rows.length;
  return all ? `These ${counted(selection.amount, type)} for ${length}`
    : `${selection.amount} of these ${counted(selection.rows.length, type)} for ${length}`;
}

function changeHeading({ start, end, lease, part }) {
  if (part === "end" && end !== lease.end) return end > lease.end ? `Prolong by ${spell(end - lease.end)}`
    : `Shorten by ${spell(lease.end - end)}`;
  if (part === "start" && start !== lease.start) {
    return start < lease.start ? `Start ${spell(lease.start - start)} earlier`
      : `Start ${spell(start - lease.start)} later`;
  }
  if (part === "move" && start !== lease.start) {
    return start < lease.start ? `Move ${spell(lease.start - start)} earlier`
      : `Move ${spell(start - lease.start)} later`;
  }
  return { end: "Change the end", start: "Change the start", move: "Move" }[part];
}

/** The label of the button that sends the request, and what it says meanwhile. */
export function action({ purpose, part, end, lease }) {
  if (purpose === "new") return ["Reserve", "Reserving..."];
  if (part === "move") return ["Move", "Moving..."];
  if (part === "start") return ["Change the start", "Changing..."];
  return end < lease.end ? ["Shorten", "Shortening..."] : ["Prolong", "Prolonging..."];
}

/** How many are free all through a selection that fits. */
export function freeSentence({ free, matching, resources }, selection, type) {
  if (selection.purpose === "change") {
    const isToStart = selection.lease.start > serverNow();
    return isToStart ? `The lease fits. It may get other ${noun(type)}.` : "The lease fits.";
  }
  if (free === null) return `The service has not counted the free ${noun(type)}; the lease fits.`;
  if (selection.place === "rows" && selection.rows.length === 1) return "Free all through.";
  if (selection.place === "rows" && free === selection.rows.length) return `All ${free} are free all through.`;
  const of = matching === null || type !== "physical:host" ? "" : ` of ${grouped(matching)}`;
  const ticked = resources.length && selection.place === "band" ? " (ticked)" : "";
  const which = free > selection.amount || selection.place === "band"
    ? ` Which ${selection.amount === 1 ? "one" : selection.amount} you get is decided when you reserve.` : "";
  return `${grouped(free)}${of} ${free === 1 ? "is" : "are"} free all through${ticked}.${which}`;
}

/** "2 free throughout, 3 needed". */
export function bandLabel(verdict, selection, short = false) {
  const needed = verdict.asked ?? selection.amount;
  if (selection.place === "rows") return rowLabel(verdict, selection);
  if (verdict.kind === "refused") {
    if (verdict.free === null) return "Does not fit";
    return short ? `${verdict.free} of ${needed}`
      : `${grouped(verdict.free)} free throughout, ${grouped(needed)} needed`;
  }
  if (verdict.kind === "fits") {
    if (verdict.free === null || selection.purpose === "change") return "Fits";
    return short ? `${grouped(verdict.free)} free` : `${grouped(verdict.free)} free throughout`;
  }
  return verdict.kind === "limited" ? "Above your limit" : "Not checked";
}

// Rows are low, and their selection may be narrow.
function rowLabel({ kind, free }, { purpose, rows }) {
  if (kind === "fits") return purpose === "change" ? "Fits" : "Free";
  if (kind !== "refused") return kind === "limited" ? "Above your limit" : "Not checked";
  return purpose === "change" || rows.length === 1 || free === null ? "Not free" : `${free} of ${rows.length} free`;
}

/** A line for a screen reader about an alternative. */
function alternativeSpoken(alternative, selection, type) {
  return `${alternative.letter}: ${alternativeLines(alternative, selection, type).join(", ")}`;
}

/** "Tue 14:00 to 22:00, 8 hours, 3 hosts": said when keys or a drag have come to rest. */
export function spoken(selection, verdict, type) {
  const what = selection.place === "rows"
    ? selection.rows.map((row) => row.name).slice(0, 3).join(", ")
      + (selection.rows.length > 3 ? ` and ${selection.rows.length - 3} more` : "")
    : counted(selection.amount, type);
  const time = `${span(selection)}, ${spell(selection.end - selection.start)}`;
  const base = selection.place === "band" && selection.amount === 1 ? time : `${time}, ${what}`;
  if (!verdict) return `${time}, ${what}`;
  if (verdict.kind === "fits") return `${base}, ${verdict.free === null ? "fits" : fraction(verdict)}`;
  if (verdict.kind === "refused") {
    const letters = verdict.alternatives.map((each) => alternativeSpoken(each, selection, type)).join(". ");
    return `${base}. ${refusalHeading(verdict, selection, type)}. ${letters}`;
  }
  return `${base}. ${verdict.detail ?? ""}`;
}

function fraction({ free, matching }) {
  return `${grouped(free)}${matching === null ? "" : " of "}${matching === null ? "" : grouped(matching)} free`;
}

/** "9 of 20 hosts, 3,470 of 5,000 host hours": use with this lease, of the tightest limits; "" if there are none. */
export function limitsLine(limits) {
  const tight = Object.entries(LIMITS).map(([key, unit]) => tightest(limits, key, unit)).filter(Boolean);
  // The number of leases is limited by default, far above what people use.
  const shown = tight.filter(({ key, used, allowed }) => key !== "leases" || used / allowed >= 0.5).slice(0, 3);
  return shown.map(({ used, allowed, unit }) => `${grouped(used)} of ${grouped(allowed)} ${unit}`).join(", ");
}

function tightest(limits, key, unit) {
  const all = (limits?.parties ?? []).filter((party) => party.limits[key] !== null && party.limits[key] !== undefined
    && key in party.used)
    .map((party) => ({ key, unit, allowed: party.limits[key], used: party.used[key] }));
  all.sort((a, b) => (a.allowed - a.used) - (b.allowed - b.used));
  return all[0] ?? null;
}

export function changeSentence(before, after, keys) {
  const parts = {
    name: () => `its name is now ${after.name}`,
    start: () => `it starts ${shortMoment(new Date(after.start))} now, not ${shortMoment(new Date(before.start))}`,
    end: () => `it ends ${shortMoment(new Date(after.end))} now, not ${shortMoment(new Date(before.end))}`,
    status: () => `its state is now ${String(after.status).toLowerCase()}`,
  };
  return keys.length ? `Changed meanwhile: ${keys.map((key) => parts[key]()).join("; ")}.` : "";
}

export function agoText(milliseconds) {
  const seconds = Math.max(1, Math.round(milliseconds / 1000));
  return seconds < 60 ? `taken ${seconds} s ago` : `taken ${Math.floor(seconds / 60)} min ago`;
}

/** The name that follows `last`: "ablation-7" gives "ablation-8". */
export function nextName(last, user) {
  const match = (last ?? "").match(/^(.*?)(\d{1,9})$/s);
  if (match) return `${match[1]}${Number(match[2]) + 1}`.slice(0, 80);
  return `${(last || user || "lease").slice(0, 77)}-${last ? 2 : 1}`;
}
