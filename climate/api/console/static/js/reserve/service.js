// The requests of reserving. Each resolves to a plain value; only aborted requests and defects throw.

import { api, get, Offline, post, Problem } from "../api.js";
import { resourceTypes } from "../lease/fields.js";
import { serverNow } from "../time.js";
import {
  admitted, isOutcomeUnknown, leaseChange, leaseOf, newLease, paramsOf, verdictOf, windowSearch,
} from "./request.js";

/** What the service knows and does about reservations of one calendar. */
export class Service {
  /** The entry of the type among the resource types; undefined if there is none. */
  async type(name) {
    return (await resourceTypes()).get(name);
  }

  /** The parameters of a reservation of `selection`; null if only the form can ask for them. */
  async params(type, selection) {
    const info = type === "physical:host" ? null : await this.type(type);
    return paramsOf(type, selection, info);
  }

  /** The verdict of a dry run. Throws only AbortError. */
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
    return params && { method: "POST", path: "/v2/leases", body: newLease(selection, { name, type, params }), headers: {} };
  }

  /**
   * Send a request.
   * @returns {Promise<{lease?: object, verdict?: object, unknown?: boolean}>}
   */
  async send({ method, path, body, headers }) {
    try {
      const answer = await api(method, path, { body, headers });
      return { lease: leaseOf(answer.body, answer.headers.get("ETag")) };
    } catch (error) {
      const problem = known(error);
      return { verdict: verdictOf(problem), unknown: isOutcomeUnknown(problem) };
    }
  }

  /** The lease as it is now, with its ETag; a verdict if it cannot be read. */
  async lease(id) {
    try {
      const { body, headers } = await api("GET", `/v2/leases/${encodeURIComponent(id)}`);
      return { lease: leaseOf(body, headers.get("ETag")), amount: amountOf(body) };
    } catch (error) {
      return { verdict: verdictOf(known(error)) };
    }
  }

  /** The ids of the resources of a lease; [] if unknown. */
  async resourcesOf(id) {
    try {
      const body = await get(`/v2/leases/${encodeURIComponent(id)}/resources`);
      return body.resources.map((each) => each.id);
    } catch (error) {
      known(error);
      return [];
    }
  }

  /** The soonest windows for what is needed: `{windows}` or `{verdict}`. */
  async soonest(selection, type, seconds, days) {
    try {
      const params = await this.params(type, selection);
      if (!params) return { verdict: { kind: "form" } };
      const search = windowSearch({ type, params, seconds, now: serverNow().getTime(), days });
      const { windows } = await post("/v2/availability/search", search);
      return { windows: windows.slice(0, 5).map(({ start, end }, index) => ({ letter: "ABCDE"[index], start: Date.parse(start), end: Date.parse(end) })) };
    } catch (error) {
      return { verdict: verdictOf(known(error)) };
    }
  }

  /** End or delete a lease: `{done}` or `{verdict}`. */
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
