// A refusal as an offer: what is missing, what is in the way, and what would fit instead.

import { h, icon, link, name, plain } from "../dom.js";
import { problemNote } from "../forms.js";
import { duration, range } from "../time.js";
import { counted } from "./words.js";

const NUMBERS = ["No", "One", "Two", "Three", "Four", "Five", "Six"];

/** The title of a refusal: "One host too few". Pure. */
export function refusalTitle({ code, missing }, type) {
  if (code === "limit_exceeded") return "More than your limits allow";
  if (code === "not_enough_resources" && missing) {
    return `${counted(missing, type).replace(/^\d+/, (number) => NUMBERS[number] || number)} too few`;
  }
  return "This does not fit";
}

/** An alternative in words: what differs from the request, and its time. Pure. */
export function alternativeWords({ differs, start, end, amount },
  { start: wanted, end: wantedEnd, amount: asked }, type) {
  const [from, to] = [new Date(start), new Date(end)];
  const texts = {
    later: () => `${duration((from - wanted) / 1000)} later`,
    shorter: () => `${duration((to - from) / 1000)} instead of ${duration((wantedEnd - wanted) / 1000)}`,
    fewer: () => `${counted(amount, type)} instead of ${asked}`,
    other: () => "Without the filter",
  };
  return { title: (texts[differs] || (() => differs))(), time: range(from, to) };
}

/**
 * The card of a refused request.
 * @param {import("../api.js").Problem} problem
 * @param {{start: Date, end: Date, types: string[], choose?: function(object): void, extra?: Node}} request
 *   `types`: the types of its reservations in their order; `choose` receives an alternative
 */
export function refusal(problem, { start, end, types, choose, extra }) {
  const body = problem.body || {};
  const type = types[body.reservation ?? 0] || types[0];
  if (body.code !== "not_enough_resources") return general(problem, type, extra);
  const wanted = { start, end, amount: body.asked };
  return h("div", { class: "refusal" },
    h("h3", {}, icon("refused"), refusalTitle(body, type)),
    facts(body, start, end, type), inTheWay(body.blocked_by || []),
    alternatives(body.alternatives || [], wanted, type, choose), extra);
}

function general(problem, type, extra) {
  const errors = (problem.body.errors || []).map((item) => item.detail);
  if (problem.code !== "limit_exceeded") return h("div", { class: "stack" }, problemNote(problem, errors), extra);
  return h("div", { class: "refusal" }, h("h3", {}, icon("refused"), refusalTitle(problem.body, type)),
    h("p", {}, plain(problem.detail)), h("p", {}, link("/console/limits", "Show the limits")), extra);
}

function facts({ asked, free, matching }, start, end, type) {
  if (typeof free !== "number") return null;
  if (matching === 0) return h("p", {}, `No ${counted(2, type).replace("2 ", "")} match these requirements.`);
  return h("p", {}, "Free all through ", h("b", {}, range(start, end)), ": ", h("b", {}, `${free} of ${matching}`),
    ". You need ", h("b", {}, asked), ".");
}

function inTheWay(blocked) {
  if (!blocked.length) return null;
  const own = new Map(blocked.filter((item) => item.lease_id).map((item) => [item.lease_id, item]));
  const parts = [...own.values()].map((item) =>
    ["your lease ", link(`/console/leases/${item.lease_id}`, name(item.lease_name))]);
  if (blocked.some((item) => !item.lease_id)) parts.push(["other projects"]);
  return h("p", { class: "small" }, "In the way: ", parts.flatMap((part, index) => [index ? ", " : "", part]), ".");
}

function alternatives(list, wanted, type, choose) {
  if (!list.length) return h("p", { class: "quiet small" }, "Nothing similar is free.");
  const items = list.map((alternative, index) => {
    const letter = "ABC"[index] || "";
    const words = alternativeWords(alternative, wanted, type);
    const text = h("span", {}, h("span", { class: "strong" }, words.title),
      h("span", { class: "small quiet" }, words.time));
    const mark = h("span", { class: "letter", "aria-hidden": "true" }, letter);
    if (!choose) return h("li", { class: "alternative" }, mark, text);
    return h("li", {}, h("button", { type: "button", class: "alternative", "data-alternative": alternative.differs,
      onclick: () => choose(alternative) }, mark, text));
  });
  return h("ul", { class: "stack", "aria-label": "What would fit" }, items);
}
