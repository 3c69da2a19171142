// The sign-in form: of Keystone, or a plain choice of names where nobody is checked.

import { api, setCsrf } from "./api.js";
import { button, h, name, replace } from "./dom.js";
import { field, form, problemNote } from "./forms.js";

/**
 * @param {{authentication: string, choose_project?: object[]}} session the answer of `GET /console/session`
 * @param {function(object): void} done receives the session once there is a user and a project
 */
export function signInForm(session, done) {
  const element = h("div", { class: "stack" });
  if (session.authentication === "none") replace(element, choice(done));
  else if (session.choose_project) showProjects(element, session, done);
  else replace(element, keystone(element, done));
  return element;
}

/** Send the names; returns the answer if a project must be chosen first, else null. */
async function enter(method, body, done) {
  const { body: answer } = await api(method, "/console/session", { body });
  if (answer?.choose_project) return answer;
  const { body: session } = await api("GET", "/console/session");
  done(session);
  return null;
}

function choice(done) {
  const roles = h("select", { name: "roles", value: "member" },
    ["admin", "member", "reader"].map((role) => h("option", { value: role }, role)));
  return form([
    field("User", h("input",
      { name: "user", required: true, autocomplete: "username", maxlength: 64, value: "admin" })),
    field("Project", h("input", { name: "project", required: true, maxlength: 64, value: "admin" })),
    field("Role", roles, "A reader sees leases, a member reserves, an administrator also sees other projects."),
  ], "Sign in", ({ user, project, roles: role }) => enter("POST", { user, project, roles: [role] }, done));
}

function keystone(element, done) {
  const next = async (body) => {
    const answer = await enter("POST", filled(body), done);
    if (answer) showProjects(element, answer, done);
  };
  const password = form([
    field("User", h("input", { name: "user", required: true, autocomplete: "username" })),
    field("Password", h("input",
      { name: "password", type: "password", required: true, autocomplete: "current-password" })),
    field("Domain", h("input", { name: "domain", value: "Default" })),
  ], "Sign in", next);
  const secret = { name: "application_credential_secret", type: "password", required: true, autocomplete: "off" };
  const credential = form([
    field("Application credential id",
      h("input", { name: "application_credential_id", required: true, autocomplete: "off" })),
    field("Secret", h("input", secret)),
  ], "Sign in with the credential", next);
  return [password, h("details", {}, h("summary", {}, "Use an application credential"), credential)];
}

function filled(values) {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value));
}

function showProjects(element, { choose_project: projects, csrf }, done) {
  if (csrf) setCsrf(csrf);
  const problem = h("div", { role: "alert" });
  const choose = async (id) => {
    try {
      await enter("PUT", { project: id }, done);
    } catch (error) {
      replace(problem, problemNote(error));
    }
  };
  const items = projects.map((project) => h("li", {}, button([h("span", { class: "grow" }, name(project.name)),
    project.domain ? h("small", { class: "quiet" }, name(project.domain)) : null], () => choose(project.id),
  { kind: "wide", "data-project": project.id })));
  const none = h("p", {}, "You have no role in any project. Ask an administrator of your cloud.");
  replace(element, problem, projects.length ? [h("p", {}, "Choose a project."), h("ul", { class: "stack" }, items)]
    : none);
  element.querySelector("button")?.focus();
}
