// The menu of the account: project, time zone, colours, sign-out.

import { api, root } from "./api.js";
import { button, h, icon, link, name, plain } from "./dom.js";
import { field } from "./forms.js";
import { chooseZone, isZoneChosen, zone } from "./time.js";

/**
 * @param {{me: object, projects?: object[], authentication: string}} session
 * @param {Array} entries of the navigation, for narrow screens
 * @param {{changed: function(): void}} after called when the user or the project has changed
 */
export function accountMenu({ me, projects, authentication }, entries, { changed }) {
  const label = plain(me.user.name || me.user.id);
  const problem = h("p", { class: "error", role: "alert" });
  const attempt = async (method, body) => {
    problem.textContent = "";
    try {
      await api(method, "/console/session", { body });
      changed();
    } catch (error) {
      problem.textContent = plain(error.detail || String(error));
    }
  };
  const menu = h("div", { id: "account-menu", class: "menu", popover: "auto", role: "dialog", "aria-label": "Account" },
    h("p", { class: "whole" }, h("b", {}, name(label)), h("br"),
      h("span", { class: "quiet" }, "Project ", name(me.project.name || me.project.id), `, ${me.roles.join(", ")}`)),
    problem,
    h("ul", {}, entries.map(([, path, text]) => h("li", {}, link(path, text))),
      h("li", {}, h("a", { href: root("/v2/docs"), target: "_blank", rel: "noopener" }, "API"))),
    projectChoice(me, projects || [], authentication, attempt),
    field("Time zone", zoneSelect()),
    field("Colours", themeSelect()),
    button("Sign out", () => attempt("DELETE"), { "data-action": "sign-out" }));
  menu.addEventListener("click", (event) => { if (event.target.closest("a")) menu.hidePopover(); });
  const avatar = h("button", { type: "button", class: "avatar", popovertarget: "account-menu",
    "aria-label": `Account of ${label}` }, initials(label));
  menu.addEventListener("beforetoggle",
    () => { menu.style.top = `${Math.max(0, avatar.getBoundingClientRect().bottom + 8)}px`; });
  return [avatar, menu];
}

/** Two letters for a user's name; an icon if it has none. */
function initials(label) {
  const words = label.split(/[\s._-]+/).filter(Boolean);
  const letters = words.length > 1 ? [...words[0]][0] + [...words[1]][0] : [...label].slice(0, 2).join("");
  return letters.toUpperCase() || icon("person");
}

function projectChoice(me, projects, authentication, attempt) {
  const change = (project) => attempt("PUT", { project });
  if (authentication === "none") {
    const input = h("input", { value: me.project.id, maxlength: 64, name: "project" });
    const send = (event) => { event.preventDefault(); change(input.value); };
    return h("form", { class: "joined", onsubmit: send }, field("Project", input),
      h("button", { type: "submit", class: "button" }, "Change project"));
  }
  if (projects.length < 2) return null;
  const options = projects.map(({ id, name: text }) => h("option", { value: id }, plain(text)));
  const select = h("select", { name: "project", value: me.project.id }, options);
  select.addEventListener("change", () => change(select.value));
  return field("Project", select);
}

function zoneSelect() {
  const zones = Intl.supportedValuesOf ? Intl.supportedValuesOf("timeZone") : [];
  const all = ["UTC", ...zones.filter((item) => item !== "UTC")];
  const own = h("option", { value: "" }, isZoneChosen() ? "As the browser" : `As the browser (${zone()})`);
  const select = h("select", { name: "zone" }, own, all.map((item) => h("option", { value: item }, item)));
  if (isZoneChosen()) select.value = zone();
  select.addEventListener("change", () => chooseZone(select.value));
  return select;
}

function themeSelect() {
  const choices = [["system", "As the system"], ["light", "Light"], ["dark", "Dark"]];
  const select = h("select", { name: "theme", value: document.documentElement.dataset.themeChoice },
    choices.map(([value, text]) => h("option", { value }, text)));
  select.addEventListener("change", () =>
    document.dispatchEvent(new CustomEvent("themechoice", { detail: select.value })));
  return select;
}
