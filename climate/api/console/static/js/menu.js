// The menu of the account: project, time zone, colours, sign-out.

import { api } from "./api.js";
import { button, h, icon, name, plain } from "./dom.js";
import { field } from "./forms.js";
import { chooseZone, isZoneChosen, zone } from "./time.js";

/**
 * @param {{me: object, projects?: object[]}} session
 * @param {Array} entries of the navigation, for narrow screens
 * @param {{changed: function(): void}} after called when the user or the project has changed
 */
export function accountMenu({ me, projects, authentication }, entries, { changed }) {
  const label = plain(me.user.name || me.user.id);
  const problem = h("p", { class: "error", role: "alert" });
  const attempt = async (method, body) => {
    try {
      await api(method, "/console/session", { body });
      changed();
    } catch (error) {
      problem.textContent = error.detail || String(error);
    }
  };
  const menu = h("div", { id: "account-menu", class: "menu", popover: "auto" },
    h("p", {}, h("b", {}, name(label)), h("br"), h("span", { class: "quiet" }, "Project ", name(me.project.name || me.project.id), `; ${me.roles.join(", ")}`)),
    problem,
    h("ul", {}, entries.map(([, path, text]) => h("li", {}, h("a", { href: path }, text))),
      h("li", {}, h("a", { href: "/v2/docs" }, "API"))),
    projectChoice(me, projects || me.projects, authentication, attempt),
    field("Time zone", zoneSelect()),
    field("Colours", themeSelect()),
    button("Sign out", () => attempt("DELETE")));
  menu.addEventListener("click", (event) => { if (event.target.closest("a")) menu.hidePopover(); });
  const avatar = h("button", { type: "button", class: "avatar", popovertarget: "account-menu", "aria-label": `Account of ${label}` }, initials(label));
  return [avatar, menu];
}

function initials(label) {
  const words = label.split(/[\s._-]+/).filter(Boolean);
  return (words.length > 1 ? words[0][0] + words[1][0] : label.slice(0, 2)).toUpperCase() || icon("person");
}

function projectChoice(me, projects, authentication, attempt) {
  if (authentication === "none") {
    const input = h("input", { value: me.project.id, maxlength: 64 });
    return [field("Project", input), button("Change project", () => attempt("PUT", { project: input.value }))];
  }
  if (!projects || projects.length < 2) return null;
  const options = projects.map(({ id, name: text }) => h("option", { value: id, selected: id === me.project.id }, plain(text)));
  const select = h("select", {}, options);
  select.addEventListener("change", () => attempt("PUT", { project_id: select.value }));
  return field("Project", select);
}

function zoneSelect() {
  const zones = Intl.supportedValuesOf ? Intl.supportedValuesOf("timeZone") : [];
  const all = ["UTC", ...zones.filter((item) => item !== "UTC")];
  const own = h("option", { value: "" }, isZoneChosen() ? "As the browser" : `As the browser (${zone()})`);
  const select = h("select", {}, own, all.map((item) => h("option", { value: item }, item)));
  if (isZoneChosen()) select.value = zone();
  select.addEventListener("change", () => chooseZone(select.value));
  return select;
}

function themeSelect() {
  const choices = [["system", "As the system"], ["light", "Light"], ["dark", "Dark"]];
  const select = h("select", {}, choices.map(([value, text]) => h("option", { value }, text)));
  try {
    select.value = localStorage.getItem("climate-theme") || "system";
  } catch {
    // Storage is blocked: only the system's colours.
  }
  select.addEventListener("change", () => {
    localStorage.setItem("climate-theme", select.value);
    document.dispatchEvent(new CustomEvent("themechoice"));
  });
  return select;
}
