// Starts the console: session, navigation, and the page that the address names.

import { api, belowRoot, onUnauthenticated, root, setCsrf } from "./api.js";
import { announce, button, dialog, h, icon, link, name, replace } from "./dom.js";
import { accountMenu } from "./menu.js";
import { signInForm } from "./signin.js";
import { offsetName, setServerNow, zoneName } from "./time.js";

const PAGES = [
  [/^\/console\/?$/, "calendar", () => import("./calendar/page.js")],
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
const header = document.getElementById("top");
const tabs = document.getElementById("tabs");
const banner = document.getElementById("banner");

let session = null;
let unmount = null;
let visit = 0;
let shown = null; // path and query of the page that is shown
let signedOut = false; // the session is over and the user has closed the sign-in form

/**
 * Load the page that the address names.
 * @param {boolean} focus whether the focus moves to the page
 * @param {{keepHeader?: boolean}} [options] leave the header and its open menu as they are
 */
async function show(focus, { keepHeader = false } = {}) {
  const me = session.me;
  const path = belowRoot(location.pathname);
  const [match, section, load] = route(path);
  visit += 1;
  const mine = visit;
  leavePage();
  shown = location.pathname + location.search;
  if (!keepHeader) navigation(me, section);
  const element = h("div", { class: section });
  replace(main, element);
  if (!load) return notFound(element);
  try {
    const { mount } = await load();
    if (mine !== visit) return;
    const context = { me, path, id: match[1] && decodeURIComponent(match[1]),
      params: new URLSearchParams(location.search), navigate, title };
    const leave = await mount(element, context);
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
  for (const [pattern, section, load] of PAGES) {
    const match = path?.match(pattern);
    if (match) return [match, section, load];
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

/** Go to a path of the console, below the root of the service. */
function navigate(path, { replace: instead = false } = {}) {
  history[instead ? "replaceState" : "pushState"](null, "", root(path));
  scrollTo(0, 0);
  return show(true);
}

function title(text) {
  document.title = text ? `${text} - climate` : "climate";
  if (visit > 1) announce(text);
}

/** The pages that the policy allows: `[section, path, label, icon]`, the less important ones last. */
export function entries(me) {
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

/** Read the session; show the sign-in form or the page. */
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
  main.querySelector("input, button, select")?.focus();
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

/** Sign in over the page. Resolves to whether the session goes on. */
async function signInAgain() {
  const { body } = await api("GET", "/console/session");
  if (!session) return false;
  const done = hasNewSession(body) ? adopted(body) : await signInDialog(body);
  signedOut = !done;
  showBanner();
  return done;
}

/** Whether another tab has signed in. */
function hasNewSession(body) {
  return body.signed_in && body.me && body.csrf !== session.csrf;
}

/** Take over a session; whether it is of the same user and project, so that the page goes on. */
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

/** The page of the console that a click on `anchor` opens here; null leaves the click to the browser. */
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
