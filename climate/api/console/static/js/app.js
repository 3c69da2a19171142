// Starts the console: session, navigation, and the page that the address names.

import { api, onUnauthenticated, setCsrf } from "./api.js";
import { announce, dialog, h, icon, name, replace } from "./dom.js";
import { accountMenu } from "./menu.js";
import { signInForm } from "./signin.js";
import { offsetName, setServerNow, zoneName } from "./time.js";

const PAGES = [
  [/^\/(console\/?)?$/, "calendar", () => import("./calendar/page.js")],
  [/^\/console\/leases\/?$/, "leases", () => import("./pages/leases.js")],
  [/^\/console\/leases\/([^/]+)$/, "leases", () => import("./pages/lease.js")],
  [/^\/console\/new$/, "new", () => import("./pages/new.js")],
  [/^\/console\/resources\/?$/, "resources", () => import("./pages/resources.js")],
  [/^\/console\/resources\/([^/]+)$/, "resources", () => import("./pages/resource.js")],
  [/^\/console\/limits$/, "limits", () => import("./pages/limits.js")],
  [/^\/console\/subscriptions$/, "subscriptions", () => import("./pages/subscriptions.js")],
  [/^\/console\/feeds$/, "feeds", () => import("./pages/feeds.js")],
  [/^\/console\/operations(?:\/([^/]*))?$/, "operations", () => import("./pages/operations.js")],
];

const main = document.getElementById("main");
const top_ = document.getElementById("top");
const tabs = document.getElementById("tabs");
const banner = document.getElementById("banner");

let session = null;
let unmount = null;
let visit = 0;

/** Load the page that the address names. `focus`: move the focus to its heading. */
async function show(focus) {
  const me = session.me;
  const [match, section, load] = route(location.pathname);
  visit += 1;
  const mine = visit;
  if (unmount) unmount();
  unmount = null;
  navigation(me, section);
  const element = h("div", { class: section });
  replace(main, element);
  if (!load) return notFound(element);
  try {
    const { mount } = await load();
    if (mine !== visit) return;
    const context = { me, path: location.pathname, id: match[1] && decodeURIComponent(match[1]),
      params: new URLSearchParams(location.search), navigate, title };
    const leave = await mount(element, context);
    if (mine === visit) unmount = leave;
    else if (leave) leave();
  } catch (error) {
    if (mine === visit) failed(element, error);
  }
  if (focus) main.focus({ preventScroll: true });
}

function route(path) {
  for (const [pattern, section, load] of PAGES) {
    const match = path.match(pattern);
    if (match) return [match, section, load];
  }
  return [null, "", null];
}

function notFound(element) {
  title("Page not found");
  replace(element, h("div", { class: "page" }, h("h1", {}, "Page not found"),
    h("p", {}, "The console has no page at this address. ", h("a", { href: "/console/" }, "Open the calendar"), ".")));
}

function failed(element, error) {
  console.warn(error);
  title("Page failed");
  replace(element, h("div", { class: "page" }, h("h1", {}, "The page could not be loaded"),
    h("p", {}, error.detail || "A file of the console is missing. The service may have been updated."),
    h("button", { type: "button", class: "button", onclick: () => location.reload() }, "Reload")));
}

/** Go to a path of the console. */
function navigate(path, { replace: instead = false } = {}) {
  history[instead ? "replaceState" : "pushState"](null, "", path);
  scrollTo(0, 0);
  return show(true);
}

function title(text) {
  document.title = text ? `${text} - climate` : "climate";
  if (visit > 1) announce(text);
}

/** The pages that the policy allows: `[section, path, label, icon, less important]`. */
function entries(me) {
  const can = (rule) => me.allowed[rule] !== false && rule in me.allowed;
  const operator = ["leases:get_all", "readiness:get", "events:get", "managers:get"].some(can);
  return [
    ["calendar", "/console/", "Calendar", "calendar", can("leases:get")],
    ["leases", "/console/leases", "Leases", "list", can("leases:get")],
    ["resources", "/console/resources", "Resources", "server", can("resources:get")],
    ["limits", "/console/limits", "Limits", "clock", can("limits:get")],
    ["subscriptions", "/console/subscriptions", "Subscriptions", "bell", can("subscriptions:get")],
    ["feeds", "/console/feeds", "Feeds", "calendar", can("feeds:get") || can("feeds:post")],
    ["operations", "/console/operations/now", "Operations", "power", operator],
  ].filter((entry) => entry[4]);
}

function navigation(me, section) {
  const current = (key) => (key === section ? "page" : null);
  const all = entries(me);
  const extra = (key) => (key === "subscriptions" || key === "feeds" ? "more" : null);
  const links = all.map(([key, path, label]) => h("a", { href: path, class: extra(key), "aria-current": current(key) }, label));
  replace(top_, brand(), h("nav", { "aria-label": "Main" }, links),
    h("div", { class: "who" },
      h("span", { class: "project" }, "Project ", h("b", {}, name(me.project.name || me.project.id))),
      h("span", { class: "zone" }, `${zoneName()}, `, h("b", {}, offsetName())),
      accountMenu(session, all, { changed: start, reload: () => show(false) })));
  const few = all.filter(([key]) => ["calendar", "leases", "resources"].includes(key));
  if (me.allowed["leases:post"]) few.splice(2, 0, ["new", "/console/new", "Reserve", "plus"]);
  replace(tabs, h("nav", { "aria-label": "Main, short" }, few.map(([key, path, label, symbol]) =>
    h("a", { href: path, "aria-current": current(key) }, icon(symbol), label))));
}

function brand() {
  return h("a", { class: "brand", href: "/console/" }, icon("logo"), "climate");
}

/** Read the session; show the sign-in form or the page. */
async function start() {
  if (unmount) unmount();
  unmount = null;
  let body;
  try {
    ({ body } = await api("GET", "/console/session"));
  } catch (error) {
    return failed(main, error);
  }
  if (body.signed_in && body.me) return begin(body);
  replace(top_, brand());
  replace(tabs);
  showStripe(body);
  title("Sign in");
  const form = signInForm(body, (next) => begin(next));
  replace(main, h("div", { class: "signin" }, h("div", { class: "card" }, h("h1", {}, "Sign in"), form)));
}

function begin(next) {
  adopt(next);
  showStripe(next);
  return show(false);
}

function adopt(next) {
  session = next;
  setCsrf(next.me.csrf);
  setServerNow(next.me.now);
}

function showStripe({ authentication }) {
  const text = "This service does not check who you are. Anybody who can reach it can do everything.";
  replace(banner, authentication === "none" ? h("p", { class: "stripe" }, text) : null);
}

/** Sign in over the page. Resolves to whether the session goes on. */
function signInAgain() {
  return new Promise((resolve) => {
    let done = false;
    const before = session;
    const content = h("div", { class: "stack" }, h("p", {}, "Your session has ended. Sign in to go on where you were."),
      signInForm(before || { authentication: "keystone" }, (next) => { done = true; adopt(next); box.close(); }));
    const box = dialog({ title: "Sign in again", content, onClose: () => resolve(done) });
  });
}

function connection({ detail }) {
  const shown = banner.querySelector(".offline");
  if (detail.up && shown) shown.remove();
  if (!detail.up && !shown) {
    banner.append(h("p", { class: "offline" }, "The service does not answer. What you see may be out of date, and changes are not possible."));
  }
}

document.addEventListener("click", (event) => {
  const anchor = event.target.closest("a[href]");
  const plainClick = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!anchor || !plainClick || event.defaultPrevented || anchor.target || anchor.hasAttribute("download")) return;
  if (anchor.origin !== location.origin || !route(anchor.pathname)[0] || anchor.getAttribute("href").startsWith("#")) return;
  event.preventDefault();
  navigate(anchor.pathname + anchor.search);
});
addEventListener("popstate", () => session && show(true));
document.addEventListener("zonechange", () => session && show(false));
document.addEventListener("connection", connection);
onUnauthenticated(signInAgain);
start();
