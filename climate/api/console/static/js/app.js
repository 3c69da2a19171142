// Starts the console: session, sign-in, navigation, menu of the account, and the page that the address names.

import { api, belowRoot, onUnauthenticated, root, setCsrf } from "./api.js";
import { announce, button, dialog, field, form, h, icon, link, name, plain, problemNote, replace } from "./dom.js";
import { chooseZone, isZoneChosen, offsetName, setServerNow, zone, zoneName } from "./time.js";

function signInForm(session, done) {
  const element = h("div", { class: "stack" });
  if (session.authentication === "none") replace(element, choice(done));
  else if (session.choose_project) showProjects(element, session, done);
  else replace(element, keystone(element, done));
  return element;
}

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

// The menu of the account

function accountMenu({ me, projects, authentication }, entries, { changed }) {
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

// Starts the console

const leases = () => import("./pages/leases.js");
const resources = () => import("./pages/resources.js");
const subscriptions = () => import("./pages/subscriptions.js");

// `[path, section, module, function that shows the page]`.
const PAGES = [
  [/^\/console\/?$/, "calendar", () => import("./calendar/page.js")],
  [/^\/console\/leases\/?$/, "leases", leases],
  [/^\/console\/leases\/([^/]+)$/, "leases", () => import("./pages/lease.js")],
  [/^\/console\/new$/, "new", () => import("./pages/new.js")],
  [/^\/console\/resources\/?$/, "resources", resources],
  [/^\/console\/resources\/([^/]+)$/, "resources", resources, "mountResource"],
  [/^\/console\/limits$/, "limits", leases, "mountLimits"],
  [/^\/console\/subscriptions$/, "subscriptions", subscriptions],
  [/^\/console\/feeds$/, "feeds", subscriptions, "mountFeeds"],
  [/^\/console\/operations(?:\/([^/]*))?$/, "operations", () => import("./pages/operations.js")],
];

const main = document.getElementById("main");
const header = document.getElementById("top");
const tabs = document.getElementById("tabs");
const banner = document.getElementById("banner");

let session = null;
let unmount = null;
let visit = 0;
let shown = null; // path and query of the page that is shown
let signedOut = false; // the session is over and the user has closed the sign-in form

async function show(focus, { keepHeader = false } = {}) {
  const me = session.me;
  const path = belowRoot(location.pathname);
  const [match, section, load, mount = "mount"] = route(path);
  visit += 1;
  const mine = visit;
  leavePage();
  shown = location.pathname + location.search;
  if (!keepHeader) navigation(me, section);
  const element = h("div", { class: section });
  replace(main, element);
  if (!load) return notFound(element);
  try {
    const page = await load();
    if (mine !== visit) return;
    const context = { me, path, id: match[1] && decodeURIComponent(match[1]),
      params: new URLSearchParams(location.search), navigate, title };
    const leave = await page[mount](element, context);
    if (mine === visit) unmount = leave;
    else if (leave) leave();
  } catch (error) {
    if (mine === visit) failed(element, error);
  }
  if (focus) main.focus({ preventScroll: true });
}

function leavePage() {
  if (unmount) unmount();
  unmount = null;
}

function route(path) {
  for (const [pattern, ...page] of PAGES) {
    const match = path?.match(pattern);
    if (match) return [match, ...page];
  }
  return [null, "", null];
}

function notFound(element) {
  title("Page not found");
  replace(element, h("div", { class: "page" }, h("h1", {}, "Page not found"),
    h("p", {}, "The console has no page at this address. ", link("/console/", "Open the calendar"), ".")));
}

function failed(element, error) {
  console.warn(error);
  title("Page failed");
  replace(element, h("div", { class: "page" }, h("h1", {}, "The page could not be loaded"),
    h("p", {}, error.detail || "The service does not answer, or has been updated meanwhile."),
    h("button", { type: "button", class: "button", onclick: () => location.reload() }, "Reload")));
}

function navigate(path, { replace: instead = false } = {}) {
  history[instead ? "replaceState" : "pushState"](null, "", root(path));
  scrollTo(0, 0);
  return show(true);
}

function title(text) {
  document.title = text ? `${text} - climate` : "climate";
  if (visit > 1) announce(text);
}

function entries(me) {
  const can = (...rules) => rules.some((rule) => me.allowed[rule]);
  return [
    ["calendar", "/console/", "Calendar", "calendar", can("calendar:get", "leases:get")],
    ["leases", "/console/leases", "Leases", "list", can("leases:get")],
    ["new", "/console/new", "Reserve", "plus", can("leases:post")],
    ["resources", "/console/resources", "Resources", "server", can("resources:get")],
    ["limits", "/console/limits", "Limits", "clock", can("limits:get")],
    ["operations", "/console/operations/now", "Operations", "power",
      can("managers:get", "events:get", "utilisation:get")],
    ["subscriptions", "/console/subscriptions", "Subscriptions", "bell", can("subscriptions:get")],
    ["feeds", "/console/feeds", "Feeds", "calendar", can("feeds:get", "feeds:post")],
  ].filter((entry) => entry[4]);
}

function navigation(me, section) {
  const current = (key) => (key === section ? "page" : null);
  const all = entries(me);
  const isMinor = (key) => key === "subscriptions" || key === "feeds";
  const links = all.filter(([key]) => !isMinor(key) || key === section).map(([key, path, label]) =>
    link(path, label, { "aria-current": current(key) }));
  replace(header, brand(), h("nav", { "aria-label": "Main" }, links),
    h("div", { class: "who" },
      h("span", { class: "project" }, "Project ", h("b", {}, name(me.project.name || me.project.id))),
      h("span", { class: "zone" }, zoneWords()),
      accountMenu(session, all, { changed: start })));
  const few = all.filter(([key]) => ["calendar", "leases", "new", "resources"].includes(key));
  replace(tabs, h("nav", { "aria-label": "Main, short" }, few.map(([key, path, label, symbol]) =>
    link(path, [icon(symbol), label], { "aria-current": current(key) }))));
}

/** "Berlin, UTC+1". */
function zoneWords() {
  return zoneName() === "UTC" ? [h("b", {}, "UTC")] : [`${zoneName()}, `, h("b", {}, offsetName())];
}

function brand() {
  return link("/console/", [icon("logo"), "climate"], { class: "brand" });
}

async function start() {
  leavePage();
  let body;
  try {
    ({ body } = await api("GET", "/console/session"));
  } catch (error) {
    return failed(main, error);
  }
  if (body.signed_in && body.me) return begin(body);
  session = null;
  visit += 1;
  replace(header, brand());
  replace(tabs);
  showStripe(body);
  title("Sign in");
  replace(main, h("div", { class: "signin" },
    h("div", { class: "card" }, h("h1", {}, "Sign in"), signInForm(body, (next) => begin(next, true)))));
  const first = main.querySelector("input, button, select");
  first?.focus();
  first?.select?.();
}

function begin(next, focus = false) {
  adopt(next);
  showStripe(next);
  return show(focus);
}

function adopt(next) {
  session = next;
  signedOut = false;
  setCsrf(next.csrf);
  setServerNow(next.me.now);
  showBanner();
}

function showStripe({ authentication }) {
  const text = "This service does not check who you are. Everyone who can reach it can do everything.";
  banner.querySelector(".stripe")?.remove();
  if (authentication === "none") banner.prepend(h("p", { class: "stripe" }, text));
}

async function signInAgain() {
  const { body } = await api("GET", "/console/session");
  if (!session) return false;
  const done = hasNewSession(body) ? adopted(body) : await signInDialog(body);
  signedOut = !done;
  showBanner();
  return done;
}

function hasNewSession(body) {
  return body.signed_in && body.me && body.csrf !== session.csrf;
}

function adopted(next) {
  const { me } = session;
  adopt(next);
  if (me.user.id === next.me.user.id && me.project.id === next.me.project.id) return true;
  show(true);
  return false;
}

function signInDialog(now) {
  return new Promise((resolve) => {
    let done = false;
    const finish = (next) => {
      done = adopted(next);
      box.close();
    };
    const content = h("div", { class: "stack" },
      h("p", {}, "Your session has ended. Sign in to go on where you were."), signInForm(now, finish));
    const box = dialog({ title: "Sign in again", content, onClose: () => resolve(done) });
  });
}

let away = false;

function showBanner() {
  banner.querySelector(".offline")?.remove();
  if (signedOut) {
    banner.append(h("p", { class: "offline" }, "You are signed out. What you see may be out of date. ",
      button("Sign in", async () => { if (await signInAgain()) show(false); }, { kind: "small" })));
  } else if (away) {
    banner.append(h("p", { class: "offline" },
      "The service does not answer. What you see may be out of date, and changes are not possible."));
  }
}

function connection({ detail }) {
  if (detail.up === !away) return;
  away = !detail.up;
  showBanner();
}

function internal(anchor, event) {
  const plainClick = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!plainClick || event.defaultPrevented || anchor.target || anchor.hasAttribute("download")) return null;
  if (anchor.getAttribute("href").startsWith("#")) return null;
  const path = anchor.origin === location.origin ? belowRoot(anchor.pathname) : null;
  return route(path)[0] ? path + anchor.search : null;
}

document.addEventListener("click", (event) => {
  const anchor = event.target.closest("a[href]");
  if (!anchor) return;
  if (anchor.classList.contains("skip")) {
    event.preventDefault();
    main.focus();
    return;
  }
  const path = session && internal(anchor, event);
  if (!path) return;
  event.preventDefault();
  navigate(path);
});
addEventListener("popstate", () => {
  if (session && shown !== location.pathname + location.search) show(true);
});
document.addEventListener("zonechange", () => {
  if (!session) return;
  replace(header.querySelector(".zone"), zoneWords());
  show(false, { keepHeader: true });
});
document.addEventListener("connection", connection);
onUnauthenticated(signInAgain);
start();
