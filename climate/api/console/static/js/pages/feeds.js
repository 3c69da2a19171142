// Calendar feeds of the project: create, revoke.

import { api } from "../api.js";
import { announce, button, confirm, h, icon, name, plain, replace } from "../dom.js";
import { check, problemNote } from "../forms.js";
import { may, refuse } from "../tables/actions.js";
import { leaseLink, resourceLink, when } from "../tables/cells.js";
import { feedDialog, scopeWords } from "../tables/feed_dialog.js";
import { keepFresh } from "../tables/refresh.js";
import { PagedTable } from "../tables/table.js";

/** Show the feeds. `?scope=lease&id=...` opens the form for that lease. */
export async function mount(element, { me, params, title }) {
  title("Calendar feeds");
  if (!may(me, "feeds:get")) {
    return refuse(element, "Calendar feeds", "Your role does not allow you to see the feeds of the project.");
  }
  const all = h("input",
    { type: "checkbox", id: "all-projects", onchange: () => { draw(); table.load({ first: true }); } });
  const columns = () => [
    { label: "Name", header: true, cell: (feed) => name(feed.name) },
    { label: "Shows", cell: (feed) => target(feed) },
    ...(all.checked ? [{ label: "Project", cell: (feed) => name(feed.project_id) }] : []),
    { label: "Created", cell: (feed) => when(feed.created_at) },
    { label: "Last read", cell: (feed) => when(feed.last_read_at) },
    ...(me.allowed["feeds:delete"]
      ? [{ label: "Revoke", hidden: true, class: "act", cell: (feed) => button("Revoke", () => revoke(feed),
      { kind: "danger small", "aria-label": `Revoke ${plain(feed.name)}`, "data-focus": "revoke" }) }] : []),
  ];
  const table = new PagedTable({
    caption: "Calendar feeds", path: "/v2/feeds", list: "feeds", columns: columns(),
    filter: () => ({ all_projects: all.checked ? "true" : "" }),
    empty: () => [h("p", { class: "strong" }, "The project has no calendar feed."),
      h("p", {}, "A feed shows leases in your own calendar, and keeps them up to date.")],
  });
  const draw = () => table.setColumns(columns());
  const problem = h("div", { role: "alert" });
  const revoke = async (feed) => {
    const text = "Its address leads nowhere from then on. Calendars that have subscribed to it get no more changes.";
    if (!(await confirm({ title: `Revoke the feed ${plain(feed.name)}`, text, action: "Revoke",
      danger: true }))) return;
    problem.replaceChildren();
    try {
      await api("DELETE", `/v2/feeds/${encodeURIComponent(feed.id)}`);
      announce("The feed is revoked.");
    } catch (error) {
      if (error.status !== 404) replace(problem, problemNote(error));
    }
    await table.load();
  };
  const create = () => feedDialog(me, {}, () => table.refresh());
  replace(element, h("div", { class: "page" },
    h("div", { class: "title" }, h("h1", { class: "grow" }, "Calendar feeds"), h("div", { class: "actions" },
      me.allowed["feeds:post"] ? button([icon("plus"), "Create feed"], create, { kind: "primary", id: "create-feed" })
        : null)),
    h("p", { class: "subtitle" }, "Everyone who has the address of a feed can read it without signing in."),
    me.allowed["feeds:get_all"] ? check("Feeds of all projects", all) : null, problem,
    h("section", { class: "card flush", "aria-label": "Calendar feeds" }, table.element)));
  table.load();
  if (me.allowed["feeds:post"] && params.get("scope") && params.get("id")) {
    feedDialog(me, { scope: params.get("scope"), id: params.get("id"), label: params.get("label") },
      () => table.refresh());
  }
  const stop = keepFresh(() => table.refresh(), 60);
  return () => {
    stop();
    table.stop();
  };
}

function target({ scope, target_id: id }) {
  const content = scope === "lease" ? leaseLink(id, id) : scope === "resource" ? resourceLink(id, id) : name(id);
  return h("span", {}, scopeWords(scope), " ", content);
}
