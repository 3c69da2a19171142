// The resource types of the service and their names for people.

import { get } from "../api.js";

const TITLES = {
  "physical:host": "Hosts", "virtual:instance": "Instances", "virtual:floatingip": "Floating IPs",
  "virtual:network": "Networks", "virtual:volume": "Volumes", "virtual:stack": "Stacks", device: "Devices",
};
const ON_HOSTS = ["virtual:instance"];

let types = null;

/** The name of a resource type: "Hosts". */
export function typeTitle(type) {
  const own = types && types.find((item) => item.name === type);
  return (own && own.title) || TITLES[type] || type;
}

/** Load the descriptions of the types once; without them, the built-in names are used. */
export async function loadTypes() {
  if (types) return types;
  try {
    const body = await get("/v2/resource-types");
    types = Array.isArray(body) ? body : body.resource_types;
  } catch {
    types = null;
  }
  return types || [];
}

/** The types that have resources of their own: instances are reserved on hosts, stacks on several types. */
export function typesWithResources(me) {
  const own = (me.resource_types || []).filter((type) => !ON_HOSTS.includes(type) && type !== "virtual:stack");
  return own.length ? own : ["physical:host"];
}
