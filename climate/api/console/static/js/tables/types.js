// The resource types that have resources of their own.

const ON_OTHERS = ["virtual:instance", "flavor:instance", "virtual:stack"];

/** The types to list resources of: instances are reserved on hosts, stacks on resources of several types. */
export function typesWithResources(me) {
  const own = (me.resource_types || []).filter((type) => !ON_OTHERS.includes(type));
  return own.length ? own : ["physical:host"];
}
