// What operators do with resources: register, remove, quarantine.

import { api, post } from "../api.js";
import { announce, button, confirm, dialog, h, name, plain, replace } from "../dom.js";
import { field, form, problemNote } from "../forms.js";
import { plural } from "./cells.js";

const PLACEHOLDERS = {
  "physical:host": ["Name of the host", "The name of the compute host in the cloud, such as compute-17."],
  "virtual:floatingip": ["Network and address", "The id of the network, a slash, and the address."],
  "virtual:network": ["Segment", "vlan:<physical network>:<number>, or vxlan::<number>."],
  "virtual:volume": ["Volume type", "The name or the id of the volume type."],
};

/** Whether the policy allows `rule`. */
export function may(me, rule) {
  return me.allowed[rule] === true;
}

/** Say that the role does not allow a page; returns what ends it: nothing to do. */
export function refuse(element, heading, text) {
  replace(element, h("div", { class: "page" }, h("h1", {}, heading), h("p", {}, text)));
  return () => {};
}

/** Open the form that registers a resource; calls `done` with the new resource. */
export function registerDialog({ types, chosen, titleOf }, done) {
  const type = h("select", { name: "resource_type" },
    types.map((item) => h("option", { value: item, selected: item === chosen }, titleOf(item))));
  const input = h("input", { name: "name", required: true, maxlength: 255, autocomplete: "off", spellcheck: "false" });
  const label = field("Name", input, "x");
  const explain = () => {
    const [words, hint] = PLACEHOLDERS[type.value] || ["Name", "The name of the resource in the cloud."];
    label.querySelector("label").textContent = words;
    label.querySelector(".hint").textContent = hint;
  };
  type.addEventListener("change", explain);
  explain();
  const text = h("textarea", { name: "properties", spellcheck: "false", placeholder: "rack = r1\ngpus = 4" });
  const content = form([field("Type", type), label,
    field("Properties", text, "Optional. One property a line: name = value. Property expressions can use them.")],
  "Register", async (values) => {
    const body = { resource_type: values.resource_type, name: values.name.trim(),
      properties: readProperties(values.properties) };
    const resource = await post("/v2/resources", body);
    box.close();
    announce(`${plain(resource.name)} is registered.`);
    done(resource);
  }, { busy: "Registering" });
  const box = dialog({ title: "Register a resource", content });
}

function readProperties(text) {
  const properties = {};
  for (const line of text.split("\n").map((item) => item.trim()).filter(Boolean)) {
    const at = line.indexOf("=");
    if (at < 1) throw fieldProblem("properties", `"${line}" is not a property. Write name = value.`);
    const value = line.slice(at + 1).trim();
    properties[line.slice(0, at).trim()] = /^-?\d{1,15}(\.\d+)?$/.test(value) ? Number(value) : value;
  }
  return properties;
}

function fieldProblem(key, detail) {
  return Object.assign(new Error(detail), { detail, body: { errors: [{ pointer: `#/${key}`, detail }] } });
}

/** Ask for the reason and quarantine the resources. `done` is called if at least one has changed. */
export function quarantineDialog(resources, done) {
  const reason = h("textarea", { name: "reason", required: true, maxlength: 2000, class: "words" });
  const effect = "Running leases keep it. climate replaces it in later leases, if another host is free.";
  const content = form([h("p", {}, `climate books a quarantined host for no new lease. ${effect}`), named(resources),
    field("Reason", reason, "Operators see it beside the host.")], "Quarantine", async (values) => {
    await each(resources, (item) => api("PATCH", `/v2/resources/${encodeURIComponent(item.id)}/readiness`,
      { body: { set_aside: values.reason.trim() } }), done);
    box.close();
    announce(`${subject(resources)} quarantined.`);
  }, { busy: "Quarantining" });
  const box = dialog({ title: `Quarantine ${subject(resources)}`, content });
}

/** End the quarantine of the resources, asked first. */
export async function endQuarantine(resources, done) {
  const text = h("span", {}, "climate books them again for new leases if they work.");
  const yes = await confirm({ title: `End the quarantine of ${subject(resources)}`, text, action: "End quarantine" });
  if (!yes) return;
  await attempt(() => each(resources, (item) => api("PATCH", `/v2/resources/${encodeURIComponent(item.id)}/readiness`,
    { body: { set_aside: null } }), done),
    `The quarantine of ${subject(resources)} has ended.`);
}

/** Remove the resources from the service, asked first. */
export async function removeResources(resources, done) {
  const text = h("span", {}, "climate forgets the resource and its properties. The cloud keeps it. ",
    "climate refuses to remove a resource that a lease uses or will use.");
  const yes = await confirm({ title: `Remove ${subject(resources)}`, text, action: "Remove", danger: true });
  if (!yes) return;
  await attempt(() => each(resources, (item) => api("DELETE", `/v2/resources/${encodeURIComponent(item.id)}`), done),
    `${subject(resources)} removed.`);
}

async function attempt(work, success) {
  try {
    await work();
    announce(success);
  } catch (error) {
    const box = dialog({ title: "Not everything has changed", content: problemNote(error, error.details || []),
      actions: [button("Close", () => box.close(), { kind: "primary" })] });
  }
}

/** Send a request for each item; afterwards tell `done`, and throw what was refused. */
async function each(items, send, done) {
  const refused = [];
  for (const item of items) {
    try {
      await send(item);
    } catch (error) {
      if (items.length === 1) throw error;
      refused.push(`${plain(item.name)}: ${error.detail || error}`);
      if (error.code === "offline") break;
    }
  }
  if (refused.length < items.length) done();
  if (!refused.length) return;
  const detail = `The service refused ${refused.length} of ${items.length}.`;
  throw Object.assign(new Error(detail), { detail, details: ["", ...refused].slice(refused.length > 1 ? 1 : 0) });
}

function subject(resources) {
  return resources.length === 1 ? plain(resources[0].name) : plural(resources.length, "resource");
}

function named(resources) {
  if (resources.length === 1) return null;
  const shown = resources.slice(0, 10);
  return h("p", { class: "small" }, shown.map((item, at) => [at ? ", " : "", name(item.name)]), resources.length > 10
    ? ` and ${resources.length - 10} more` : "", ".");
}
