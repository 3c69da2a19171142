// Subscriptions of the project: create, change, suspend, delete; what the receiver did not accept.

import { api } from "../api.js";
import { announce, button, confirm, h, icon, name, plain, replace } from "../dom.js";
import { check, problemNote } from "../forms.js";
import { typeTitle } from "../lease/words.js";
import { may, refuse } from "../tables/actions.js";
import { count, leaseLink, when } from "../tables/cells.js";
import { keepFresh } from "../tables/refresh.js";
import { deadLettersDialog, subscriptionDialog } from "../tables/subscription_dialogs.js";
import { PagedTable } from "../tables/table.js";

/** Show the subscriptions. */
export async function mount(element, { me, title }) {
  title("Subscriptions");
  if (!may(me, "subscriptions:get")) {
    return refuse(element, "Subscriptions", "Your role does not allow you to see the subscriptions of the project.");
  }
  const page = subscriptionsList(me);
  replace(element, h("div", { class: "page" },
    h("div", { class: "title" }, h("h1", { class: "grow" }, "Subscriptions"),
      h("div", { class: "actions" }, page.create)),
    h("p", { class: "subtitle" }, "climate sends notifications about leases to your own service, as signed webhooks."),
    page.element));
  page.table.load();
  const stop = keepFresh(() => page.table.refresh(), 15);
  return () => {
    stop();
    page.table.stop();
  };
}

/** The list with its actions: `{element, create, table}`. `all`: of all projects from the start. */
export function subscriptionsList(me, { all = false } = {}) {
  const list = new SubscriptionsList(me, all);
  return { element: list.element, create: list.create, table: list.table };
}

class SubscriptionsList {
  constructor(me, all) {
    this.me = me;
    this.all = h("input", { type: "checkbox", id: "all-projects", checked: all, onchange: () => this.switched() });
    this.problem = h("div", { role: "alert" });
    this.table = new PagedTable({
      caption: "Subscriptions", path: "/v2/subscriptions", list: "subscriptions", columns: this.columns(),
      filter: () => ({ all_projects: this.all.checked ? "true" : "" }), empty: () => this.nothing(),
    });
    this.create = me.allowed["subscriptions:post"] ? button([icon("plus"), "Create subscription"],
      () => subscriptionDialog(me, null, () => this.table.refresh()), { kind: "primary", id: "create-subscription" })
        : null;
    const choice = me.allowed["subscriptions:get_all"] ? check("Subscriptions of all projects", this.all) : null;
    this.element = h("div", { class: "stack-20" }, choice, this.problem,
      h("section", { class: "card flush", "aria-label": "Subscriptions" }, this.table.element));
  }

  columns() {
    return [
      { label: "Receiver", header: true, cell: ({ url }) => address(url) },
      { label: "Notifications", cell: filters },
      ...(this.all && this.all.checked
        ? [{ label: "Project", cell: (item) => (item.all_projects ? "All projects" : name(item.project_id)) }] : []),
      { label: "State", cell: state },
      { label: "Last delivery", cell: (item) => when(item.delivered_at) },
      { label: "Dead letters", class: "number", cell: (item) => this.deadLetters(item) },
      ...(this.me.allowed["subscriptions:put"]
        ? [{ label: "Actions", hidden: true, class: "act", cell: (item) => this.actions(item) }] : []),
    ];
  }

  deadLetters(item) {
    if (!item.dead_letters) return "0";
    return h("button", { type: "button", class: "link", dataset: { focus: "letters" },
      "aria-label": `${item.dead_letters} dead letters of ${plain(item.url)}`,
      onclick: () => deadLettersDialog(item, { mayRedeliver: Boolean(this.me.allowed["subscriptions:put"]) },
        () => this.table.refresh()) }, count(item.dead_letters));
  }

  actions(item) {
    const active = item.status === "active";
    const of = ` ${plain(item.url)}`;
    return h("span", { class: "row-actions" },
      button("Change", () => subscriptionDialog(this.me, item, () => this.table.refresh()),
        { kind: "small", "aria-label": `Change${of}`, "data-focus": "change" }),
      button(active ? "Suspend" : "Resume", () => this.attempt("PATCH", item,
        { status: active ? "suspended" : "active" }),
        { kind: "small", "aria-label": `${active ? "Suspend" : "Resume"}${of}`, "data-focus": "status" }),
      this.me.allowed["subscriptions:delete"] ? button("Delete", () => this.remove(item),
        { kind: "small danger", "aria-label": `Delete${of}`, "data-focus": "delete" }) : null);
  }

  async remove(item) {
    const text = h("span", {}, "climate sends nothing more to ", name(item.url), ", and forgets its dead letters.");
    if (await confirm({ title: "Delete the subscription", text, action: "Delete", danger: true })) this.attempt(
      "DELETE", item);
  }

  async attempt(method, item, body) {
    this.problem.replaceChildren();
    try {
      await api(method, `/v2/subscriptions/${encodeURIComponent(item.id)}`, { body });
      announce(method === "DELETE" ? "The subscription is deleted." : "The subscription has changed.");
    } catch (error) {
      replace(this.problem, problemNote(error));
    }
    this.table.refresh();
  }

  switched() {
    this.table.setColumns(this.columns());
    this.table.load({ first: true });
  }

  nothing() {
    return [h("p", { class: "strong" }, this.all.checked ? "No project has a subscription."
      : "The project has no subscription."),
      h("p", {}, "With one, your service learns of each change of a lease without asking for it.")];
  }
}

/** An address without its scheme, which breaks at slashes if it is long. */
function address(url) {
  const parts = plain(url.replace(/^https:\/\//, "")).split("/");
  return h("bdi", {}, parts.map((part, at) => (at ? ["/", h("wbr"), part] : part)));
}

function filters({ event_types: types, lease_id: lease, resource_type: type }) {
  return h("span", {}, types.length ? types.map((item, at) => [at ? ", " : "", h("code", {}, plain(item))]) : "All",
    lease ? h("div", {}, "of the lease ", leaseLink(lease, `${lease.slice(0, 8)}...`)) : null,
    type ? h("div", {}, `of leases with ${typeTitle(type).toLowerCase()}`) : null);
}

function state({ status, reason }) {
  const suspended = status !== "active";
  return h("span", {}, h("span", { class: "state" }, icon(suspended ? "warning" : reason ? "warning" : "check"),
    suspended ? "Suspended" : reason ? "Active, failing" : "Active"),
    reason ? h("small", { class: "quiet reason" }, name(reason)) : null);
}
