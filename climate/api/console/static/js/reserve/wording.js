// Sentences about selections, refusals and alternatives. Pure but for the chosen time zone.

import { typeWords } from "../calendar/scale.js";
import { filterText } from "../tables/properties.js";
import { fields, range, serverNow, shortMoment, utc } from "../time.js";

const HOUR = 3600_000;

export function noun(type, number = 2) {
  const { one, many } = typeWords(type);
  return number === 1 ? one : many;
}

/** "3 hosts". */
export function count(number, type) {
  return `${grouped(number)} ${noun(type, number)}`;
}

/** "3,470". */
export function grouped(number) {
  return Number(number).toLocaleString("en-US", { maximumFractionDigits: 1 });
}

/** "20 hours", "1 hour", "90 minutes", "12 hours 30 minutes", "5 days 3 hours". */
export function spell(milliseconds) {
  const minutes = Math.round(milliseconds / 60_000);
  if (minutes < 1) return plural(Math.round(milliseconds / 1000), "second");
  if (minutes < 60 || minutes === 90) return plural(minutes, "minute");
  if (minutes <= 96 * 60) return pair(Math.floor(minutes / 60), "hour", minutes % 60, "minute");
  const hours = Math.round(minutes / 60);
  return pair(Math.floor(hours / 24), "day", hours % 24, "hour");
}

function plural(number, unit) {
  return `${number} ${unit}${number === 1 ? "" : "s"}`;
}

function pair(large, unit, small, smallUnit) {
  return small ? `${plural(large, unit)} ${plural(small, smallUnit)}` : plural(large, unit);
}

/** "Wed 11:00 to Thu 07:00". */
export function span({ start, end }) {
  return range(new Date(start), new Date(end));
}

/** "Wed 10:00 to Thu 06:00 UTC". */
export function utcSpan({ start, end }) {
  const [first, last] = [new Date(start), new Date(end)];
  const name = (date) => `${fields(date, "UTC").weekday} ${utc(date).replace(/^[A-Z][a-z]{2} /, "").replace(" UTC", "")}`;
  return `${name(first)} to ${name(last)} UTC`;
}

export function heading(selection, type) {
  if (selection.purpose === "change") return changeHeading(selection);
  const length = spell(selection.end - selection.start);
  if (selection.place === "band") return `${count(selection.amount, type)} for ${length}`;
  if (selection.rows.length === 1) return `${selection.rows[0].name} for ${length}`;
  const all = selection.amount === selection.rows.length;
  return all ? `These ${count(selection.amount, type)} for ${length}` : `${selection.amount} of these ${count(selection.rows.length, type)} for ${length}`;
}

function changeHeading({ start, end, lease, part }) {
  if (part === "end" && end !== lease.end) return end > lease.end ? `Prolong by ${spell(end - lease.end)}` : `Shorten by ${spell(lease.end - end)}`;
  if (part === "start" && start !== lease.start) {
    return start < lease.start ? `Start ${spell(lease.start - start)} earlier` : `Start ${spell(start - lease.start)} later`;
  }
  if (part === "move" && start !== lease.start) {
    return start < lease.start ? `Move ${spell(lease.start - start)} earlier` : `Move ${spell(start - lease.start)} later`;
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
  if (selection.purpose === "change") return `The lease fits.${selection.lease.start > serverNow() ? ` It may get other ${noun(type)}.` : ""}`;
  if (free === null) return `The service has not counted the free ${noun(type)}; the lease fits.`;
  if (selection.place === "rows" && selection.rows.length === 1) return "Free all through.";
  if (selection.place === "rows" && free === selection.rows.length) return `All ${free} are free all through.`;
  const of = matching === null || type !== "physical:host" ? "" : ` of ${grouped(matching)}`;
  const ticked = resources.length && selection.place === "band" ? " (ticked)" : "";
  const which = free > selection.amount || selection.place === "band"
    ? ` Which ${selection.amount === 1 ? "one" : selection.amount} you get is decided when you reserve.` : "";
  return `${grouped(free)}${of} ${free === 1 ? "is" : "are"} free all through${ticked}.${which}`;
}

/** "One host too few". */
export function refusalHeading({ free, matching, missing, asked }, selection, type) {
  const needed = asked ?? selection.amount;
  const short = missing ?? (free === null ? null : needed - free);
  if (selection.purpose === "change") return `The lease cannot keep all its ${noun(type)}`;
  if (selection.place === "rows" && selection.rows.length === 1) return `${selection.rows[0].name} is not free`;
  if (matching === 0) return `No ${noun(type, 1)} matches`;
  if (type === "physical:host" && matching !== null && matching < needed) return `Only ${count(matching, type)} ${matching === 1 ? "matches" : "match"}`;
  if (short === null || short < 1) return `Not enough ${noun(type)}`;
  return `${short === 1 ? "One" : grouped(short)} ${noun(type, short)} too few`;
}

/** "2 free throughout, 3 needed". */
export function bandLabel(verdict, selection, short = false) {
  const needed = verdict.asked ?? selection.amount;
  if (selection.place === "rows") return rowLabel(verdict, selection);
  if (verdict.kind === "refused") {
    if (verdict.free === null) return "Does not fit";
    return short ? `${verdict.free} of ${needed}` : `${grouped(verdict.free)} free throughout, ${grouped(needed)} needed`;
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

/** The two lines of an alternative: what differs, and its window. */
export function alternativeLines(alternative, selection, type) {
  const { differs, start, end, amount } = alternative;
  const first = {
    later: () => `${spell(start - selection.start)} later`,
    shorter: () => shorter(end - start, selection.end - selection.start),
    fewer: () => `${count(amount, type)} instead of ${grouped(selection.amount)}`,
    other: () => otherLine(selection, type),
  }[differs] ?? (() => differs);
  return [first(), span(alternative)];
}

function shorter(length, asked) {
  const whole = length % HOUR === 0 && asked % HOUR === 0 && asked <= 96 * HOUR;
  return whole ? `${spell(length)} instead of ${asked / HOUR}` : `${spell(length)} instead of ${spell(asked)}`;
}

function otherLine(selection, type) {
  if (selection.place === "rows") {
    const names = selection.rows.length === 1 ? selection.rows[0].name : "these";
    return selection.amount === 1 ? `Any ${noun(type, 1)} instead of ${names}` : `Any ${count(selection.amount, type)} instead of ${names}`;
  }
  const filter = filterText(selection.properties);
  return filter ? `${count(selection.amount, type)} without ${filter}` : `Other ${noun(type)}`;
}

/** A line for a screen reader about an alternative. */
export function alternativeSpoken(alternative, selection, type) {
  return `${alternative.letter}: ${alternativeLines(alternative, selection, type).join(", ")}`;
}

/** "Tue 14:00 to 22:00, 8 hours, 3 hosts": said when keys or a drag have come to rest. */
export function spoken(selection, verdict, type) {
  const what = selection.place === "rows"
    ? selection.rows.map((row) => row.name).slice(0, 3).join(", ") + (selection.rows.length > 3 ? ` and ${selection.rows.length - 3} more` : "")
    : count(selection.amount, type);
  const time = `${span(selection)}, ${spell(selection.end - selection.start)}`;
  const base = selection.place === "band" && selection.amount === 1 ? time : `${time}, ${what}`;
  if (!verdict) return `${time}, ${what}`;
  if (verdict.kind === "fits") return `${base}, ${verdict.free === null ? "fits" : `${fraction(verdict)} free`}`;
  if (verdict.kind === "refused") {
    const letters = verdict.alternatives.map((each) => alternativeSpoken(each, selection, type)).join(". ");
    return `${base}. ${refusalHeading(verdict, selection, type)}. ${letters}`;
  }
  return `${base}. ${verdict.detail ?? ""}`;
}

function fraction({ free, matching }) {
  return matching === null ? grouped(free) : `${grouped(free)} of ${grouped(matching)}`;
}

const COUNTED = [["hosts", "hosts"], ["host_hours", "host hours"], ["vcpus", "vCPUs"], ["leases", "leases"]];

/** "9 of 20 hosts, 3,470 of 5,000 host hours": use with this lease, of the tightest limits; "" if there are none. */
export function limitsLine(limits) {
  const tight = COUNTED.map(([key, unit]) => tightest(limits, key, unit)).filter(Boolean);
  // The number of leases is limited by default, far above what people use.
  const shown = tight.filter(({ key, used, allowed }) => key !== "leases" || used / allowed >= 0.5).slice(0, 3);
  return shown.map(({ used, allowed, unit }) => `${grouped(used)} of ${grouped(allowed)} ${unit}`).join(", ");
}

function tightest(limits, key, unit) {
  const all = (limits?.parties ?? []).filter((party) => party.limits[key] !== null && party.limits[key] !== undefined && key in party.used)
    .map((party) => ({ key, unit, allowed: party.limits[key], used: party.used[key] }));
  all.sort((a, b) => (a.allowed - a.used) - (b.allowed - b.used));
  return all[0] ?? null;
}

const LIMIT_TITLES = {
  hosts: "Above the limit of hosts", vcpus: "Above the limit of vCPUs", host_hours: "Above the limit of host hours",
  leases: "Above the limit of leases", duration: "The lease is too long", horizon: "The lease ends too late",
  extension_window: "It is too early to prolong", extension: "Prolonged by too much at once",
};

/** Heading and sentence of a limit that was exceeded. */
export function limitLines({ limit, scope, allowed, used, asked, unit, detail }) {
  const title = LIMIT_TITLES[limit] ?? "Above a limit";
  const whose = scope === "user" ? "You may" : "Your project may";
  const length = (seconds) => spell(seconds * 1000);
  const sentence = {
    duration: () => `${whose} reserve for ${length(allowed)} at most; this is ${length(asked)}.`,
    horizon: () => `${whose} reserve up to ${length(allowed)} ahead; this would end in ${length(asked)}.`,
    extension: () => `${whose} prolong a running lease by ${length(allowed)} at once; this is ${length(asked)}.`,
    extension_window: () => `${whose} prolong a running lease in its last ${length(allowed)}, which begin in ${length(asked - allowed)}.`,
  }[limit];
  if (sentence) return [title, sentence()];
  if (allowed === undefined) return [title, detail];
  const words = String(unit ?? "").replaceAll("-", " ");
  return [title, `${whose} have ${grouped(allowed)} ${words}; ${used ? grouped(used) : "none"} ${used === 1 || !used ? "is" : "are"} taken, and this needs ${grouped(asked)}.`];
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
