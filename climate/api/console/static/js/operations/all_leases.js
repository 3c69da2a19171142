// The leases of all projects.

import { h, name, replace } from "../dom.js";
import { field } from "../forms.js";
import { contents, typeTitle } from "../lease/words.js";
import { leaseLink, leaseStatus, when } from "../tables/cells.js";
import { keepFresh } from "../tables/refresh.js";
import { PagedTable, rememberParams } from "../tables/table.js";

const STATUSES = [["", "Not over"], ["ACTIVE", "Running"], ["PENDING", "Later"], ["ERROR", "Failed"],
  ["TERMINATED", "Ended"], ["all", "All"]];
const OPEN = ["PENDING", "STARTING", "ACTIVE", "UPDATING", "TERMINATING", "DELETING", "ERROR"];

/** Show the tab. */
export async function show(element, { me, params }) {
  const status = h("select", {},
    STATUSES.map(([value, words]) => h("option", { value, selected: value === (params.get("status") || "") }, words)));
  const type = h("select", {}, h("option", { value: "" }, "Any"),
    (me.resource_types || []).map((item) => h("option", { value: item, selected: item === params.get("type") },
      typeTitle(item))));
  const label = h("input", { type: "search", value: params.get("name") || "", maxlength: 80 });
  const table = new PagedTable({
    caption: "Leases of all projects", path: "/v2/leases", list: "leases", sort: params.get("sort") || "start",
    marker: params.get("marker"), columns: columns(),
    filter: () => ({ all_projects: "true", resource_type: type.value, name: label.value.trim(),
      status: status.value === "all" ? "" : status.value || OPEN }),
    moved: ({ marker, sort }) => rememberParams({ marker, sort }),
    empty: () => "No lease matches.",
  });
  const changed = () => {
    rememberParams({ status: status.value, type: type.value, name: label.value.trim(), marker: null });
    table.load({ first: true });
  };
  for (const control of [status, type, label]) control.addEventListener("change", changed);
  replace(element, h("div", { class: "filters", role: "search" }, field("Status", status), field("With", type),
    field("Name is", label)),
    h("section", { class: "card flush", "aria-label": "Leases of all projects" }, table.element));
  table.load();
  const stop = keepFresh(() => table.refresh(), 15);
  return () => {
    stop();
    table.stop();
  };
}

function columns() {
  return [
    { label: "Lease", sort: "name", header: true, cell: (lease) => leaseLink(lease.id, lease.name) },
    { label: "Status", class: "nowrap", cell: leaseStatus },
    { label: "Project", cell: (lease) => name(lease.project_id) },
    { label: "Owner", cell: (lease) => name(lease.user_id) },
    { label: "Resources", cell: (lease) => contents(lease.reservations) },
    { label: "Start", sort: "start", cell: (lease) => when(lease.start) },
    { label: "End", sort: "end", cell: (lease) => when(lease.end) },
  ];
}
