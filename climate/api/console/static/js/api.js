// Requests to the API of this site, with the session cookie.

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

/** The path below the root of the service that an address of this site names; null for others. */
export function belowRoot(pathname) {
  return pathname.startsWith(`${ROOT}/`) ? pathname.slice(ROOT.length) : null;
}

/** Set the token that state-changing requests carry: `csrf` of the session. */
export function setCsrf(token) {
  csrf = token;
  declined = false;
}

/** Set what to do when the session is over: `handler` resolves to true after a new sign-in. */
export function onUnauthenticated(handler) {
  reauthenticate = handler;
}

/**
 * Send a request; `body` is sent as JSON. A 401 opens the sign-in form, and the request is repeated
 * after it. `background`: the page sends it, not the user; it does not open a form that was closed.
 * @param {string} method
 * @param {string} path below the root of the service
 * @param {{body?: *, headers?: Object<string, string>, signal?: AbortSignal, background?: boolean}} [options]
 * @returns {Promise<{status: number, body: *, headers: Headers}>} raises Problem, Offline or AbortError
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

/** Short forms that return the body. */
export const get = async (path, options) => (await api("GET", path, options)).body;
export const post = async (path, body, options) => (await api("POST", path, { ...options, body })).body;

/** A query string of those values that are not null, undefined or empty; arrays repeat the key. */
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

/** A new idempotency key. */
export function requestKey() {
  if (crypto.randomUUID) return crypto.randomUUID();
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function send(method, path, { body, headers = {}, signal }) {
  const all = { Accept: "application/json", ...headers };
  if (body !== undefined) all["Content-Type"] = "application/json";
  if (csrf && method !== "GET") all["X-Climate-Csrf"] = csrf;
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
