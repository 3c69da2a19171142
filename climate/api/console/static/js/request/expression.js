// Property expressions: lines of a form to the JSON of the API and back. Pure functions.

import { parsed } from "../lease/words.js";

/** The comparisons of the form: `[operator, words]`. */
export const OPERATORS = [["==", "="], ["!=", "is not"], [">=", ">="], ["<=", "<="], [">", ">"], ["<", "<"],
  ["in", "one of"]];

const KNOWN = new Set([...OPERATORS.map(([operator]) => operator), "="]);

/**
 * The terms of an expression that the form can show: a comparison, or several joined by "and".
 * @param {string|Array} expression JSON
 * @returns {{property: string, operator: string, value: string}[]|null} null: write it as text
 */
export function toTerms(expression) {
  if (expression === "" || expression === null || expression === undefined) return [];
  const parts = parsed(expression);
  if (!Array.isArray(parts)) return null;
  if (!parts.length) return [];
  const list = parts[0] === "and" ? parts.slice(1) : [parts];
  const terms = list.map(term);
  return terms.includes(null) ? null : terms;
}

function term(part) {
  if (!Array.isArray(part) || !KNOWN.has(part[0])) return null;
  const [operator, property, ...values] = part;
  if (typeof property !== "string" || !property.startsWith("$")) return null;
  const flat = values.flat();
  if (!flat.length || flat.some((value) => typeof value === "object")) return null;
  if (operator !== "in" && flat.length > 1) return null;
  return { property: property.slice(1), operator: operator === "=" ? "==" : operator, value: flat.join(", ") };
}

/** The expression of terms, as an array; `""` without a complete term. */
export function toExpression(terms) {
  const parts = terms.filter(({ property, value }) => property && value !== "").map(comparison);
  if (!parts.length) return "";
  return parts.length === 1 ? parts[0] : ["and", ...parts];
}

function comparison({ property, operator, value }) {
  const values = operator === "in" ? value.split(",") : [value];
  return [operator, `$${property}`, ...values.map((item) => scalar(item.trim()))];
}

/** A number if the text is one as people write it, else the text. */
function scalar(text) {
  return /^-?(0|[1-9]\d{0,14})(\.\d+)?$/.test(text) ? Number(text) : text;
}

/** An expression as JSON; `""` for all that match everything. */
function normal(text) {
  const json = JSON.stringify(parsed(text) ?? (text || ""));
  return json === "[]" ? '""' : json;
}

/** Whether two expressions are the same. */
export function isSame(one, other) {
  return normal(one) === normal(other);
}
