// Refusals in words, with what would fit instead, for the calendar and for the forms.

import { button, h, icon, lineOf, link, name, plain, problemNote } from "../dom.js";
import { expressionText } from "../tables/properties.js";
import { span, spell } from "../time.js";
import { counted, grouped, LIMITS, noun } from "./words.js";

const HOUR = 3600_000;

/** The verdict about a request that the service did not admit. */
export function verdictOf(problem) {
  const { status, code, detail, body = {} } = problem;
  const common = { code, detail, status };
  if (status === 409 && code === "not_enough_resources") return refused(body, common);
  if (status === 403 && code === "limit_exceeded") {
    const { limit, scope, unit, allowed, used, asked } = body;
    return { kind: "limited", ...common, limit, scope, unit, allowed, used, asked };
  }
  if (status === 412) return { kind: "changed", ...common, etag: body.etag ?? null };
  if (status === 404) return { kind: "gone", ...common };
  if (status === 401) return { kind: "signed-out", ...common };
  if (!status || status >= 500 || status === 429) return { kind: "down", ...common };
  return { kind: "invalid", ...common, errors: body.errors ?? [] };
}

function refused(body, common) {
  const alternatives = (body.alternatives ?? []).slice(0, 3).map((each, index) => ({
    letter: "ABC"[index], differs: each.differs, start: Date.parse(each.start), end: Date.parse(each.end),
      amount: each.amount,
  }));
  const blockers = (body.blocked_by ?? []).map((each) => ({
    id: each.lease_id ?? null, name: each.lease_name ?? "", start: Date.parse(each.start), end: Date.parse(each.end),
  }));
  return { kind: "refused", ...common, asked: body.asked ?? null, free: body.free ?? null,
    matching: body.matching ?? null, missing: body.missing ?? null, canWait: body.can_wait, blockers, alternatives };
}

/** "One host too few". */
export function refusalHeading({ free, matching, missing, asked }, selection, type) {
  const needed = asked ?? selection.amount;
  const short = missing ?? (free === null ? null : needed - free);
  if (selection.purpose === "change") return `The lease cannot keep all its ${noun(type)}`;
  if (selection.place === "rows" && selection.rows.length === 1) return `${selection.rows[0].name} is not free`;
  if (matching === 0) return `No ${noun(type, 1)} matches`;
  if (type === "physical:host" && matching !== null && matching < needed) {
    return `Only ${counted(matching, type)} ${matching === 1 ? "matches" : "match"}`;
  }
  if (short === null || short < 1) return `Not enough ${noun(type)}`;
  return `${short === 1 ? "One" : grouped(short)} ${noun(type, short)} too few`;
}

/** The two lines of an alternative: what differs, and its window. */
export function alternativeLines(alternative, selection, type) {
  const { differs, start, end, amount } = alternative;
  const first = {
    later: () => `${spell(start - selection.start)} later`,
    shorter: () => shorter(end - start, selection.end - selection.start),
    fewer: () => `${counted(amount, type)} instead of ${grouped(selection.amount)}`,
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
    return selection.amount === 1 ? `Any ${noun(type, 1)} instead of ${names}`
      : `Any ${counted(selection.amount, type)} instead of ${names}`;
  }
  const filter = expressionText(selection.properties);
  return filter ? `${counted(selection.amount, type)} without ${filter}` : `Other ${noun(type)}`;
}

const LIMIT_TITLES = {
  duration: "The lease is too long", horizon: "The lease ends too late",
  extension_window: "It is too early to prolong", extension: "Prolonged by too much at once",
};

/** Heading and sentence of a limit that was exceeded. */
export function limitLines({ limit, scope, allowed, used, asked, unit, detail }) {
  const title = LIMIT_TITLES[limit] ?? `Above the limit of ${LIMITS[limit] ?? limit}`;
  const whose = scope === "user" ? "You may" : "Your project may";
  const length = (seconds) => spell(seconds * 1000);
  const sentence = {
    duration: () => `${whose} reserve for ${length(allowed)} at most; this is ${length(asked)}.`,
    horizon: () => `${whose} reserve up to ${length(allowed)} ahead; this would end in ${length(asked)}.`,
    extension: () => `${whose} prolong a running lease by ${length(allowed)} at once; this is ${length(asked)}.`,
    extension_window: () =>
      `${whose} prolong a running lease in its last ${length(allowed)}, which begin in ${length(asked - allowed)}.`,
  }[limit];
  if (sentence) return [title, sentence()];
  if (allowed === undefined) return [title, detail];
  const words = String(unit ?? "").replaceAll("-", " ");
  const taken = `${used ? grouped(used) : "none"} ${used === 1 || !used ? "is" : "are"} taken`;
  return [title, `${whose} have ${grouped(allowed)} ${words}; ${taken}, and this needs ${grouped(asked)}.`];
}

/** How many are free, and how many are needed. */
export function shortageLine({ free, matching, asked, detail }, selection, type) {
  if (free === null) return h("p", {}, plain(detail));
  const of = matching === null || type !== "physical:host" ? "" : ` of ${grouped(matching)}`;
  return h("p", {}, "Free all through ", h("b", {}, span(selection)), ": ", h("b", {}, `${grouped(free)}${of}`),
    ". You need ", h("b", {}, grouped(asked ?? selection.amount)), ".");
}

/** Whose leases are in the way; null if that is not known. */
export function blockerLine(blockers, selection) {
  const own = blockers.filter(({ id }) => id && id !== selection.lease?.id);
  const unique = [...new Map(own.map((each) => [each.id, each])).values()].slice(0, 3);
  const parts = unique.map(({ id, name: label }) => ["your lease ",
    link(`/console/leases/${encodeURIComponent(id)}`, name(label || id))]);
  if (blockers.some(({ id }) => !id)) parts.push(["other projects"]);
  if (!parts.length) return null;
  const joined = parts.map((part, index) => [index ? (index === parts.length - 1 ? ", and " : ", ") : "", part]);
  return h("p", { class: "blockers" }, "In the way: ", joined, ".");
}

/**
 * The card of a refused request of a form. `choose` receives the alternative that the user takes; `wait` is called if
 * the user wants to wait.
 */
export function refusal(problem, { start, end, reservations, choose, wait }) {
  const verdict = verdictOf(problem);
  const { resource_type: type, params } = reservations[problem.body?.reservation ?? 0] ?? reservations[0];
  if (verdict.kind === "limited") {
    const [title, sentence] = limitLines(verdict);
    return card(title, h("p", {}, plain(sentence)), h("p", {}, link("/console/limits", "Show the limits")));
  }
  if (verdict.kind !== "refused") {
    return h("div", { class: "stack" }, problemNote(problem, (problem.body?.errors || []).map(lineOf)));
  }
  const selection = { purpose: "new", place: "band", rows: [], start: start.getTime(), end: end.getTime(),
    amount: verdict.asked, properties: params?.resource_properties };
  const items = verdict.alternatives.map((alternative) => {
    const [title, time] = alternativeLines(alternative, selection, type);
    return h("li", {}, h("button", { type: "button", class: "alternative", "data-alternative": alternative.differs,
      onclick: () => choose(alternative) },
    h("span", { class: "letter", "aria-hidden": "true" }, alternative.letter),
    h("span", {}, h("span", { class: "strong" }, plain(title)), h("span", { class: "small quiet" }, time))));
  });
  return card(refusalHeading(verdict, selection, type), shortageLine(verdict, selection, type),
    blockerLine(verdict.blockers, selection),
    items.length ? h("ul", { class: "stack", "aria-label": "What would fit" }, items)
      : h("p", { class: "quiet small" }, "Nothing similar is free."),
    wait && verdict.canWait ? waitButton(wait) : null);
}

export function waitButton(wait) {
  return button([icon("clock"), "Wait for capacity"], wait, { "data-action": "wait" });
}

function card(title, ...content) {
  return h("div", { class: "refusal" }, h("h3", {}, icon("refused"), title), content);
}
