// Fields for the parameters of a resource type, from the JSON schema of the API. Pure functions.

import { label } from "../lease/words.js";

const AMOUNTS = ["max", "min", "amount"];
const FILTER = "property-expression"; // format of the schema
const MAIN_FILTER = "resource_properties"; // shown at once, the other filters only if they are set

const CHOICES = {
  affinity: { "": "Anywhere", true: "On one host", false: "On different hosts" },
  on_start: { create: "Create", nothing: "Only reserve" },
  on_end: { delete: "Delete", keep: "Keep", suspend: "Suspend", snapshot: "Save an image, then delete" },
  before_end: { default: "As configured", snapshot: "Save an image of each server", "": "Nothing" },
};

/**
 * The parameters of a schema, the amounts first.
 * @param {object} schema JSON schema of the `params` of a type
 * @returns {{key: string, kind: string, label: string, hint: string, isRequired: boolean, isMinor: boolean,
 *   isNullable: boolean, choices: Array, fallback: *, least: ?number, most: ?number}[]}
 */
export function parameters(schema) {
  const entries = Object.entries(schema.properties || {}).filter(([, part]) => !part.readOnly && !isFixed(part));
  const required = new Set(schema.required || []);
  const keys = entries.map(([key]) => key);
  const filters = entries.filter(([, part]) => part.format === FILTER).map(([key]) => key);
  const filter = filters.includes(MAIN_FILTER) ? MAIN_FILTER : filters[0];
  const rank = ({ key }) => (AMOUNTS.includes(key) ? AMOUNTS.indexOf(key) : AMOUNTS.length);
  const list = entries.map(([key, part]) => {
    const kind = kindOf(part);
    const isLeast = key === "min" && keys.includes("max");
    return {
      key, kind, label: key === filter ? "Which ones" : part.title || label(key),
      hint: isLeast ? "Empty: as many as at most." : part.description || "",
      isRequired: required.has(key) && !isLeast,
      isMinor: kind === FILTER ? key !== filter : !required.has(key) && ![...AMOUNTS, "template"].includes(key),
      isNullable: typesOf(part).includes("null"), choices: kind === "choice" ? choicesOf(key, part) : [],
      enum: part.enum || [], fallback: part.default ?? null,
      least: part.minimum ?? null, most: part.maximum ?? null,
    };
  });
  return list.sort((one, other) => rank(one) - rank(other));
}

/** Whether a parameter can have only one value. */
function isFixed(part) {
  return part.enum?.length === 1;
}

function typesOf(part) {
  return [part.type].flat().filter(Boolean);
}

function kindOf(part) {
  const types = typesOf(part).filter((type) => type !== "null");
  if (part.format === FILTER) return FILTER;
  if (part.format === "yaml") return "file";
  if (part.enum) return "choice";
  if (types.includes("integer")) return "integer";
  if (types.includes("number")) return "number";
  if (types.includes("boolean")) return "flag";
  if (types.includes("array") && part.items?.type === "string") return "list";
  if (types.length === 1 && types[0] === "string") return "text";
  return "json";
}

/** The choices as `[text of the value, words]`; null is one if it is what an absent parameter means. */
function choicesOf(key, part) {
  const words = CHOICES[key] || {};
  const values = part.enum.filter((value) => value !== null).map(String);
  const hasNone = part.enum.includes(null) && (part.default ?? null) === null && !values.includes("");
  return (hasNone ? ["", ...values] : values).map((value) => [value, words[value] || value || "As usual"]);
}

/** The value of a parameter from the text of its control; undefined: leave it out. Raises SyntaxError. */
export function valueOf({ kind, enum: values }, text) {
  const content = text.trim();
  if (kind === "choice") return values.find((value) => value !== null && String(value) === content);
  if (content === "") return undefined;
  if (kind === "integer" || kind === "number") return Number(content);
  if (kind === "list") return content.split(/[\s,]+/).filter(Boolean);
  if (kind === "json") return JSON.parse(content);
  if (kind === "file") return content.startsWith("{") ? JSON.parse(content) : content;
  return content;
}

/** The text of a control for a value of a parameter. */
export function textOf({ kind }, value) {
  if (value === null || value === undefined) return "";
  if (kind === "list") return Array.isArray(value) ? value.join("\n") : String(value);
  return typeof value === "object" ? JSON.stringify(value, null, 2) : String(value);
}
