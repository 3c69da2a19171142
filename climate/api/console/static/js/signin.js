// The sign-in form: of Keystone, or a plain choice of names where nobody is checked.

import { api, setCsrf } from "./api.js";
import { button, h, name, replace } from "./dom.js";
import { field, form } from "./forms.js";

/**
 * @param {{authentication: string}} session the answer of `GET /console/session`
 * @param {function(object): void} done receives the session once there is a user and a project
 */
export function signInForm(session, done) {
  const element = h("div", { class: "stack" });
  if (session.authentication === "none") replace(element, choice(done));
  else if (session.projects && session.signed_in) replace(element, projects(session.projects, done));
  else replace(element, keystone(element, done));
  return element;
}

async function enter(method, body, done) {
  const { body: answer } = await api(method, "/console/session", { body });
  if (answer.projects && !answer.user) return answer.projects;
  const { body: next } = await api("GET", "/console/session");
  done(next);
  return null;
}

function choice(done) {
  const roles = h("select", { name: "roles" }, ["member", "reader", "admin"].map((role) => h("option", { value: role }, role)));
  return form([
    field("User", h("input", { name: "user", required: true, autocomplete: "username", maxlength: 64, value: "admin" })),
    field("Project", h("input", { name: "project", required: true, maxlength: 64, value: "admin" })),
    field("Role", roles, "A reader sees leases, a member reserves, an administrator also sees other projects."),
  ], "Sign in", ({ user, project, roles: role }) => enter("POST", { user, project, roles: [role] }, done));
}

function keystone(element, done) {
  const next = async (body) => {
    const found = await enter("POST", body, done);
    if (found) replace(element, projects(found, done));
  };
  const password = form([
    field("User", h("input", { name: "username", required: true, autocomplete: "username" })),
    field("Password", h("input", { name: "password", type: "password", required: true, autocomplete: "current-password" })),
    field("Domain", h("input", { name: "user_domain", value: "Default" })),
    field("Project", h("input", { name: "project" }), "Optional: without it you choose from a list."),
  ], "Sign in", (values) => next(filled({ ...values, project_domain: values.project && values.user_domain })));
  const credential = form([
    field("Application credential id", h("input", { name: "application_credential_id", required: true, autocomplete: "off" })),
    field("Secret", h("input", { name: "application_credential_secret", type: "password", required: true, autocomplete: "off" })),
  ], "Sign in", (values) => next(filled(values)));
  return [password, h("details", {}, h("summary", {}, "Use an application credential"), credential)];
}

function filled(values) {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value));
}

function projects(found, done) {
  const problem = h("p", { class: "error", role: "alert" });
  const choose = async (id) => {
    try {
      const { body } = await api("GET", "/console/session");
      if (body.csrf || (body.me && body.me.csrf)) setCsrf(body.csrf || body.me.csrf);
      await enter("PUT", { project_id: id }, done);
    } catch (error) {
      problem.textContent = error.detail || String(error);
    }
  };
  return [h("p", {}, "Choose a project."), problem, h("ul", { class: "stack" }, found.map((project) =>
    h("li", {}, button([name(project.name), project.domain ? h("small", { class: "quiet" }, name(project.domain)) : null], () => choose(project.id)))))];
}
