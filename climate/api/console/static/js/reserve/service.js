// Requests of the selection: bodies, dry runs, verdicts.

import { api, get, Offline, post, Problem } from "../api.js";
import { resourceTypes } from "../lease/fields.js";
import { verdictOf } from "../lease/refusals.js";
import { serverNow } from "../time.js";

/** What the service knows and does about reservations of one calendar. */
export class Service {
  async type(name) {
    return (await resourceTypes()).get(name);
  }

  async params(type, selection) {
    const info = type === "physical:host" ? null : await this.type(type);
    return paramsOf(type, selection, info);
  }

  async check(selection, type, signal) {
    try {
      const request = await this.request(selection, type, "check");
      if (!request) return { kind: "form" };
      const { method, path, body, headers } = request;
      const answer = await api(method, `${path}?dry_run=true`, { body, headers, signal });
      return admitted(answer.body);
    } catch (error) {
      return verdictOf(known(error));
    }
  }

  /** The request that reserves or changes: `{method, path, body, headers}`; null if only the form can make it. */
  async request(selection, type, name) {
    if (selection.purpose === "change") {
      const { id, etag } = selection.lease;
      const headers = etag ? { "If-Match": etag } : {};
      return { method: "PATCH", path: `/v2/leases/${encodeURIComponent(id)}`, body: leaseChange(selection), headers };
    }
    const params = await this.params(type, selection);
    return params && { method: "POST", path: "/v2/leases", body: newLease(selection, { name, type, params }),
      headers: {} };
  }

  async send({ method, path, body, headers }) {
    try {
      const answer = await api(method, path, { body, headers });
      return { lease: leaseOf(answer.body, answer.headers.get("ETag")) };
    } catch (error) {
      const problem = known(error);
      return { verdict: verdictOf(problem), unknown: isOutcomeUnknown(problem) };
    }
  }

  async lease(id) {
    try {
      const { body, headers } = await api("GET", `/v2/leases/${encodeURIComponent(id)}`);
      return { lease: leaseOf(body, headers.get("ETag")), amount: amountOf(body) };
    } catch (error) {
      return { verdict: verdictOf(known(error)) };
    }
  }

  async resourcesOf(id) {
    try {
      const body = await get(`/v2/leases/${encodeURIComponent(id)}/resources`);
      return body.resources.map((each) => each.id);
    } catch (error) {
      known(error);
      return [];
    }
  }

  async soonest(selection, type, seconds, days) {
    try {
      const params = await this.params(type, selection);
      if (!params) return { verdict: { kind: "form" } };
      const search = windowSearch({ type, params, seconds, now: serverNow().getTime(), days });
      const { windows, forbidden } = await post("/v2/availability/search", search);
      if (!windows.length && forbidden.length) {
        return { verdict: { kind: "error", code: "limit_exceeded", detail: forbidden[0].detail } };
      }
      return { windows: windows.slice(0, 5).map(({ start, end }, index) =>
        ({ letter: "ABCDE"[index], start: Date.parse(start), end: Date.parse(end) })) };
    } catch (error) {
      return { verdict: verdictOf(known(error)) };
    }
  }

  async remove(id) {
    try {
      const { status } = await api("DELETE", `/v2/leases/${encodeURIComponent(id)}`);
      return { done: status };
    } catch (error) {
      return { verdict: verdictOf(known(error)) };
    }
  }
}

// Anything but a refusal or a missing answer is a defect of the console, which must show.
function known(error) {
  if (error instanceof Problem || error instanceof Offline) return error;
  throw error;
}

function amountOf(body) {
  return body.reservations.reduce((sum, { params }) => sum + (params.min ?? params.amount ?? 1), 0);
}

// What is sent to reserve a selection, and what the answers mean.

const HOST = "physical:host";

function paramsOf(type, selection, info) {
  const properties = selection.place === "rows" ? rowsExpression(selection.rows) : selection.properties;
  if (type === HOST) {
    return { min: selection.amount, max: selection.amount, ...(properties ? { resource_properties: properties } : {}) };
  }
  if (!needsOnlyAmount(info)) return null;
  const filters = properties && info.schema.properties?.resource_properties;
  return { amount: selection.amount, ...(filters ? { resource_properties: properties } : {}) };
}

function needsOnlyAmount(info) {
  const schema = info && info.schema;
  if (!schema || !schema.properties || !("amount" in schema.properties)) return false;
  return (schema.required || []).every((key) => key === "amount" || key === "resource_properties");
}

function rowsExpression(rows) {
  return rows.length === 1 ? ["==", "$id", rows[0].id] : ["in", "$id", ...rows.map((row) => row.id)];
}

function newLease(selection, { name, type, params }) {
  return {
    name,
    start: selection.fromNow ? "now" : utc(selection.start),
    end: utc(selection.end),
    reservations: [{ resource_type: type, params }],
  };
}

function leaseChange({ start, end, fromNow, lease, part }) {
  const body = {};
  if (part !== "end" && start !== lease.start) body.start = fromNow ? "now" : utc(start);
  if (part !== "start" && end !== lease.end) body.end = utc(end);
  return body;
}

function windowSearch({ type, params, seconds, now, days }) {
  return {
    reservations: [{ resource_type: type, params }],
    duration: seconds,
    start_after: "now",
    end_by: utc(now + days * 86400_000 + seconds * 1000),
    limit: 5,
  };
}

export function formAddress(selection, { name, type, waits }) {
  const values = new URLSearchParams({ type, amount: selection.amount, ...(waits
    ? { start: "asap", wait: Math.round((selection.end - selection.start) / 1000) }
    : { start: utc(selection.start), end: utc(selection.end) }) });
  const properties = selection.place === "rows" ? rowsExpression(selection.rows) : selection.properties;
  if (properties) values.set("properties", JSON.stringify(properties));
  if (name) values.set("name", name);
  return `/console/new?${values}`;
}


/** The verdict of a dry run that the service answered with 200. */
function admitted(body) {
  const capacity = body.reservations?.[0] ?? {};
  return {
    kind: "fits", asked: capacity.asked ?? null, free: capacity.free ?? null, matching: capacity.matching ?? null,
    resources: capacity.resources ?? [], limits: body.limits ?? null,
    start: Date.parse(body.lease?.start), end: Date.parse(body.lease?.end),
  };
}

function isOutcomeUnknown({ status, code }) {
  return !status || status >= 500 || code === "request_under_way";
}

/** What of the lease differs between the one that was shown and the present one. */
export function differences(before, after) {
  return ["name", "start", "end", "status"].filter((key) => before[key] !== after[key]);
}

/** A lease of the API with its times in ms. */
export function leaseOf(body, etag = null) {
  return { id: body.id, name: body.name, status: body.status, degraded: Boolean(body.degraded),
    start: time(body.start), end: time(body.end), etag };
}

const time = (value) => (typeof value === "number" ? value : Date.parse(value));

function utc(time_) {
  return new Date(Math.round(time_ / 1000) * 1000).toISOString().replace(".000Z", "Z");
}

// Dry runs of selections

const REST = 120; // ms without a change
const RETRY = 4000; // ms after the service did not answer

export class Checker {
  #run;
  #done;
  #timer = 0;
  #under = null;

  constructor(run, done) {
    this.#run = run;
    this.#done = done;
  }

  request(selection, { now = false } = {}) {
    this.cancel();
    this.#timer = setTimeout(() => this.#check(selection), now ? 0 : REST);
  }

  cancel() {
    clearTimeout(this.#timer);
    this.#under?.abort();
    this.#under = null;
  }

  async #check(selection) {
    const controller = new AbortController();
    this.#under = controller;
    let verdict;
    try {
      verdict = await this.#run(selection, controller.signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      throw error;
    }
    if (controller.signal.aborted) return;
    this.#under = null;
    this.#done(selection, verdict);
    if (verdict.kind === "down") this.#timer = setTimeout(() => this.#check(selection), RETRY);
  }
}
