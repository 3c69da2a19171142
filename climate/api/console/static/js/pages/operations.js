// What operators watch and do: one tab for each question.

import { h, link, replace } from "../dom.js";
import { may, refuse } from "../tables/actions.js";

const any = (...rules) => (me) => rules.some((rule) => may(me, rule));

// `[key, label, whether the policy allows it, module]`; a module exports `show(element, context)`, which
// returns the function that ends it.
const TABS = [
  ["now", "Now", any("events:get", "managers:get"), () => import("../operations/now.js")],
  ["ready", "Getting ready", any("preparations:get"), () => import("../operations/preparations.js")],
  ["power", "Without power", any("shutdowns:get"), () => import("../operations/power.js")],
  ["failing", "Quarantined and failing", any("readiness:get", "readiness:put"),
    () => import("../operations/failing.js")],
  ["leases", "All leases", any("leases:get_all"), () => import("../operations/all_leases.js")],
  ["notifications", "Notifications", any("notifications:get_all", "subscriptions:get_all"),
    () => import("../operations/notifications.js")],
  ["utilisation", "Utilisation", any("utilisation:get"), () => import("../operations/utilisation.js")],
];

/** Show the tab that the address names, or the first. */
export async function mount(element, context) {
  const allowed = TABS.filter(([, , allows]) => allows(context.me));
  const tab = allowed.find(([key]) => key === context.id) || (context.id ? null : allowed[0]);
  if (!tab) {
    context.title("Operations");
    return refuse(element, "Operations", allowed.length ? "There is no such page for operators."
      : "Your role does not allow you to see the operations of the service.");
  }
  const [key, label, , load] = tab;
  context.title(`${label}, operations`);
  const content = h("div", { class: "stack-20", id: `operations-${key}` });
  replace(element, h("div", { class: "page" }, h("h1", {}, "Operations"),
    h("nav", { class: "segments", "aria-label": "Operations" }, allowed.map(([item, words]) =>
      link(`/console/operations/${item}`, words, { "aria-current": item === key ? "page" : null }))),
    h("h2", { class: "visually-hidden" }, label), content));
  const { show } = await load();
  return show(content, context);
}
