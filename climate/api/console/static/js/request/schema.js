// Fields for the parameters of a resource type, from the JSON schema of the API. Pure functions.

import { label } from "../lease/words.js";

const FILTERS = ["resource_properties", "hypervisor_properties", "network_properties"];
const LISTS = ["required_floatingips"];
const FILES = ["template", "environment"];
const FIRST = ["max", "min", "amount", "flavor_id", "network_id", "network_name", "volume_type", "size", "vcpus",
  "memory_mb", "disk_gb",
  "template", "stack_name", ...FILTERS];

const LABELS = {
  min: "At least", size: "Size (GB)", flavor_id: "Flavor", network_id: "External network",
  network_name: "Name of the network", resource_properties: "Which ones", hypervisor_properties: "Which hypervisors",
  network_properties: "Which networks", required_floatingips: "These addresses", affinity: "Placement",
  on_start: "At the start", on_end: "At the end", before_end: "Before the end", server: "Servers to boot",
  stack_id: "Existing stack", template: "Template", environment: "Environment", files: "Files", amount: "Amount",
};

const HINTS = {
  min: "Empty: as many as above.", flavor_id: "Id or name of a flavor of the cloud.",
  network_id: "Id of an external network.",
  volume_type: "Name or id of a volume type.", required_floatingips: "One address a line.",
  stack_id: "Id of a stack of your project.",
  template: "A HOT template, as text or from a file.", server: "A server of the compute API, as JSON.",
  parameters: "An object, as JSON.", files: "An object of names and texts, as JSON.",
};

const CHOICES = {
  affinity: [["", "Anywhere"], ["true", "On one host"], ["false", "On different hosts"]],
  on_start: { create: "Create", nothing: "Only reserve" },
  on_end: { delete: "Delete", keep: "Keep", suspend: "Suspend", snapshot: "Take a snapshot" },
  before_end: { default: "As configured", snapshot: "Take a snapshot", "": "Nothing" },
};

/**
 * The parameters of a schema, the important ones first.
 * @param {object} schema JSON schema of the `params` of a type
 * @param {{unit?: string}} words
 * @returns {{key: string, kind: string, label: string, hint: string, isRequired: boolean, isMinor: boolean,
 *   choices: Array, fallback: *, least: ?number, most: ?number}[]}
 */
export function parameters(schema, { unit = "" } = {}) {
  const required = new Set(schema.required || []);
  const keys = Object.keys(schema.properties || {});
  const filter = FILTERS.find((key) => keys.includes(key));
  const rank = (key) => (FIRST.includes(key) ? FIRST.indexOf(key) : FIRST.length);
  const list = keys.filter((key) => key !== "volume_type_id").map((key) => {
    const part = schema.properties[key];
    const kind = kindOf(key, part);
    return {
      key, kind, label: labelOf(key, part, unit), hint: part.description || HINTS[key] || "",
      isRequired: required.has(key) && !(key === "min" && keys.includes("max")),
      isMinor: kind === "filter" ? key !== filter : !required.has(key) && !["amount", "template", "min"].includes(key),
      choices: kind === "choice" ? choicesOf(key, part) : [],
      fallback: part.default ?? null,
      least: part.minimum ?? (kind === "integer" ? 0 : null), most: part.maximum ?? null,
    };
  });
  return list.sort((one, other) => rank(one.key) - rank(other.key));
}

function kindOf(key, part) {
  if (FILTERS.includes(key)) return "filter";
  if (LISTS.includes(key)) return "list";
  if (FILES.includes(key)) return "file";
  if (part.enum || key === "affinity") return "choice";
  const types = [part.type].flat().filter((type) => type && type !== "null");
  if (types.includes("integer")) return "integer";
  if (types.includes("number")) return "number";
  if (types.includes("boolean")) return "flag";
  if (types.includes("string")) return "text";
  return "json";
}

function labelOf(key, part, unit) {
  if (key === "max" && unit) return unit;
  if (key === "amount" && unit) return unit;
  return LABELS[key] || part.title || label(key);
}

function choicesOf(key, part) {
  if (key === "affinity") return CHOICES.affinity;
  const words = CHOICES[key] || {};
  return part.enum.filter((value) => value !== null).map((value) => [String(value), words[value] || String(value)]);
}

/** The value of a parameter from the text of its control; undefined: leave it out. Raises SyntaxError. */
export function valueOf({ key, kind }, text) {
  const content = typeof text === "string" ? text.trim() : text;
  if (content === "" || content === null || content === undefined) return undefined;
  if (kind === "integer" || kind === "number") return Number(content);
  if (kind === "choice" && key === "affinity") return content === "true";
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
