// Tells the page that something has changed. One tab of a browser asks the service and tells the
// others, because a browser has only six connections to a site over HTTP/1.1.

import { api } from "./api.js";

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
 * Call `callback` after each change, with the windows that changed (`[{start, end}]`), or null if
 * they are not known. Returns a function that ends this.
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

/** Ask once; returns how long to wait the next time. */
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
