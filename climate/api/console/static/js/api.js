// The service: requests, changes that it announces, and refreshes of what the page shows.

/** A refusal of the API: `status`, stable `code`, `detail` for people, and the whole `body`. */
export class Problem extends Error {
  constructor(status, body, headers) {
    super((body && body.detail) || `The service answered with status ${status}.`);
    this.status = status;
    this.body = body || {};
    this.code = this.body.code || "";
    this.detail = this.message;
    this.headers = headers;
  }
}

/** No answer: it is unknown whether the service received the request. */
export class Offline extends Error {
  constructor() {
    super("The service does not answer.");
    this.status = 0;
    this.code = "offline";
    this.detail = this.message;
  }
}

const ROOT = document.querySelector("meta[name=climate-root]")?.content ?? "";
let csrf = null;
let reauthenticate = null;
let waiting = null;
let declined = false; // The user has closed the sign-in form; only requests of the user open it again.

/** The address of `path` on this site: the service need not be mounted at the root of the site. */
export function root(path) {
  return ROOT + path;
}

/** The path below the root of the service that an address of this site names. */
export function belowRoot(pathname) {
  return pathname.startsWith(`${ROOT}/`) ? pathname.slice(ROOT.length) : null;
}

/** Set the token that requests carry: `csrf` of the session. */
export function setCsrf(token) {
  csrf = token;
  declined = false;
}

/** Set what to do when the session is over: `handler` resolves to true after a new sign-in. */
export function onUnauthenticated(handler) {
  reauthenticate = handler;
}

/**
 * Send a request with a JSON body; raises Problem, Offline or AbortError. A 401 opens the sign-in form and repeats
 * the request after it; with `background`, a form that the user has closed stays closed.
 */
export async function api(method, path, options = {}) {
  try {
    return await send(method, path, options);
  } catch (problem) {
    if (!(problem instanceof Problem) || path.startsWith("/console/session")) throw problem;
    if (problem.status === 401 && (await signedInAgain(options))) return send(method, path, options);
    if (problem.code === "cross_site_request" && (await csrfChanged())) return send(method, path, options);
    throw problem;
  }
}

export const get = async (path, options) => (await api("GET", path, options)).body;
export const post = async (path, body, options) => (await api("POST", path, { ...options, body })).body;

/** A query string of those values that are not null, undefined or empty. */
export function query(values) {
  const pairs = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item !== null && item !== undefined && item !== "") pairs.append(key, item);
    }
  }
  const text = pairs.toString();
  return text ? `?${text}` : "";
}

export function requestKey() {
  if (crypto.randomUUID) return crypto.randomUUID();
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function send(method, path, { body, headers = {}, signal }) {
  const all = { Accept: "application/json", ...headers };
  if (body !== undefined) all["Content-Type"] = "application/json";
  // With GET, too: without authentication, a request without it and without a session is one of an administrator.
  if (csrf) all["X-Climate-Csrf"] = csrf;
  const text = body === undefined ? undefined : JSON.stringify(body);
  const response = await answer(path, { method, headers: all, body: text, signal, credentials: "same-origin" });
  const content = await decoded(response);
  if (response.status >= 400) throw new Problem(response.status, content, response.headers);
  return { status: response.status, body: content, headers: response.headers };
}

async function answer(path, request) {
  try {
    const response = await fetch(root(path), request);
    report(true);
    return response;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    report(false);
    throw new Offline();
  }
}

async function decoded(response) {
  if (response.status === 204 || response.status === 304) return null;
  const type = response.headers.get("Content-Type") || "";
  try {
    return type.includes("json") ? await response.json() : await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (response.status >= 400) return null;
    throw new Offline();
  }
}

function report(up) {
  document.dispatchEvent(new CustomEvent("connection", { detail: { up } }));
}

function signedInAgain({ background = false }) {
  if (!reauthenticate || (background && declined)) return false;
  // Several requests fail at once; one dialog serves them all.
  waiting ??= reauthenticate().then((done) => {
    declined = !done;
    return done;
  }).finally(() => { waiting = null; });
  return waiting;
}

async function csrfChanged() {
  const { body } = await send("GET", "/console/session", {});
  const token = body && body.csrf;
  if (!token || token === csrf) return false;
  csrf = token;
  return true;
}

// Changes. One tab of a browser asks the service and tells the others, because a browser has only six
// connections to a site over HTTP/1.1.

const LOCK = "climate-live";
const CHANNEL = "climate-live";
const WAIT = 20; // seconds of a long poll
const POLL = 3000; // ms between polls where long polling is refused
const RETRY = 5000; // ms after a failure

const listeners = new Set();
const channel = "BroadcastChannel" in globalThis ? new BroadcastChannel(CHANNEL) : null;
let version = null;
let missed = false; // a change came while the page was hidden
let running = false;
let stop = null;
const state = { ok: false, at: null };

/**
 * Call `callback` after each change, with the windows that changed (`[{start, end}]`), or null if they are not
 * known.
 */
export function onChange(callback) {
  listeners.add(callback);
  start();
  return () => {
    listeners.delete(callback);
    if (!listeners.size && stop) stop.abort();
  };
}

/** Whether changes arrive, and when the service was last heard: `{ok, at}`. */
export function liveState() {
  return state;
}

if (channel) channel.onmessage = ({ data }) => receive(data);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    if (stop) stop.abort();
    return;
  }
  if (missed) {
    missed = false;
    publish(null);
  }
  start();
});

function receive({ version: heard, ok, at, changes = null }) {
  note(ok, at);
  if (!heard || heard === version) return;
  const first = version === null;
  version = heard;
  if (first) return;
  if (document.hidden) missed = true;
  else publish(changes);
}

function note(ok, at) {
  state.ok = ok;
  if (ok) state.at = new Date(at);
  document.dispatchEvent(new CustomEvent("live", { detail: state }));
}

function publish(changes) {
  for (const callback of [...listeners]) callback(changes);
}

function tell(message) {
  receive(message);
  if (channel) channel.postMessage(message);
}

async function start() {
  if (running || document.hidden || !listeners.size) return;
  running = true;
  stop = new AbortController();
  const { signal } = stop;
  try {
    if (navigator.locks) await navigator.locks.request(LOCK, { signal }, () => follow(signal));
    else await follow(signal);
  } catch (error) {
    if (error.name !== "AbortError") note(false, Date.now());
  }
  running = false;
  if (!signal.aborted) setTimeout(start, RETRY);
  else setTimeout(start, 0); // The page may have come back meanwhile.
}

async function follow(signal) {
  let wait = WAIT;
  while (!signal.aborted) {
    try {
      wait = await once(wait, signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.code === "too_many_followers") {
        wait = 0;
        await pause(POLL, signal);
        continue;
      }
      if (error.status === 401 || error.status === 403 || error.status === 404) throw error;
      tell({ version: null, ok: false, at: Date.now() });
      await pause(RETRY, signal);
    }
  }
}

async function once(wait, signal) {
  const query = version === null ? "" : `?after=${encodeURIComponent(version)}&wait=${wait}`;
  const { body } = await api("GET", `/v2/calendar/changes${query}`, { signal, background: true });
  tell({ version: body.version, ok: true, at: Date.now(), changes: body.reset ? null : body.changes });
  if (wait === 0 && query) await pause(POLL, signal);
  return wait;
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}

// Refreshes that keep the focus, and run only while the page is seen.

const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";

/** Call `refresh` after each change of the calendar, and every `seconds` while the page is visible. */
export function keepFresh(refresh, seconds = 15) {
  let ended = false;
  let running = false;
  let again = false;
  const run = async () => {
    if (ended || document.hidden) return;
    if (running) {
      again = true;
      return;
    }
    running = true;
    try {
      await refresh();
    } catch (error) {
      console.debug(error.detail || error);
    }
    running = false;
    if (again) {
      again = false;
      run();
    }
  };
  const timer = setInterval(run, seconds * 1000);
  const stop = onChange(run);
  document.addEventListener("visibilitychange", run);
  return () => {
    ended = true;
    clearInterval(timer);
    stop();
    document.removeEventListener("visibilitychange", run);
  };
}

/**
 * Run `change`, which may replace what is inside `element`, and give the focus back to the same place: the element
 * with the same `data-focus` in the row with the same `data-key`.
 */
export function keepFocus(element, change) {
  const active = document.activeElement;
  const inside = active && active !== element && element.contains(active);
  const place = inside ? placeOf(element, active) : null;
  change();
  if (!inside || (document.activeElement === active && active.isConnected)) return;
  const target = find(element, place);
  if (target) target.focus({ preventScroll: true });
}

function placeOf(element, active) {
  const row = active.closest("[data-key]");
  const holder = row && element.contains(row) ? row : element;
  const all = focusable(holder);
  return {
    key: row ? row.dataset.key : null,
    at: row ? [...row.parentNode.children].indexOf(row) : 0,
    focus: active.dataset.focus,
    index: all.indexOf(active),
  };
}

function find(element, { key, at, focus, index }) {
  const rows = [...element.querySelectorAll("[data-key]")];
  const holder = key === null ? element : rows.find((row) => row.dataset.key === key)
    || rows[Math.min(at, rows.length - 1)];
  if (!holder) return element.closest("[tabindex]") || document.getElementById("main");
  const all = focusable(holder);
  return (focus && all.find((item) => item.dataset.focus === focus)) || all[Math.min(index, all.length - 1)] || null;
}

function focusable(element) {
  return [...element.querySelectorAll(FOCUSABLE)].filter((item) => !item.disabled);
}
