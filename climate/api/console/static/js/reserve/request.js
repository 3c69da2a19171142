// What is sent to reserve a selection, and what the answers mean. No DOM, no requests.

const HOST = "physical:host";

/**
 * The parameters of a reservation of this selection; null if the type needs more than an amount.
 * @param {string} type the resource type
 * @param {import("./selection.js").Selection} selection
 * @param {object} [info] the entry of the type in `GET /v2/resource-types`
 */
export function paramsOf(type, selection, info) {
  const properties = selection.place === "rows" ? rowsExpression(selection.rows) : selection.properties;
  if (type === HOST) {
    return { min: selection.amount, max: selection.amount, ...(properties ? { resource_properties: properties } : {}) };
  }
  if (!needsOnlyAmount(info)) return null;
  const filters = properties && info.schema.properties?.resource_properties;
  return { amount: selection.amount, ...(filters ? { resource_properties: properties } : {}) };
}

/** Whether a type can be reserved with an amount alone. */
export function needsOnlyAmount(info) {
  const schema = info && info.schema;
  if (!schema || !schema.properties || !("amount" in schema.properties)) return false;
  return (schema.required || []).every((key) => key === "amount" || key === "resource_properties");
}

/** The expression that matches exactly these resources. */
export function rowsExpression(rows) {
  return rows.length === 1 ? ["==", "$id", rows[0].id] : ["in", "$id", ...rows.map((row) => row.id)];
}

/** The body of `POST /v2/leases`. */
export function newLease(selection, { name, type, params }) {
  return {
    name,
    start: selection.fromNow ? "now" : utc(selection.start),
    end: utc(selection.end),
    reservations: [{ resource_type: type, params }],
  };
}

/** The body of `PATCH /v2/leases/<id>`: only what changes. */
export function leaseChange({ start, end, fromNow, lease, part }) {
  const body = {};
  if (part !== "end" && start !== lease.start) body.start = fromNow ? "now" : utc(start);
  if (part !== "start" && end !== lease.end) body.end = utc(end);
  return body;
}

/** The body of `POST /v2/availability/search` for windows within `days` from now on. */
export function windowSearch({ type, params, seconds, now, days }) {
  return {
    reservations: [{ resource_type: type, params }],
    duration: seconds,
    start_after: "now",
    end_by: utc(now + days * 86400_000 + seconds * 1000),
    limit: 5,
  };
}

/** The address of the form with this selection filled in. */
export function formAddress(selection, { name, type }) {
  const values = new URLSearchParams({ type, amount: selection.amount, start: utc(selection.start), end: utc(selection.end) });
  const properties = selection.place === "rows" ? rowsExpression(selection.rows) : selection.properties;
  if (properties) values.set("properties", JSON.stringify(properties));
  if (name) values.set("name", name);
  return `/console/new?${values}`;
}

/**
 * @typedef {object} Verdict
 * @property {"fits"|"refused"|"limited"|"invalid"|"changed"|"gone"|"signed-out"|"down"} kind
 */

/** The verdict of a dry run that the service answered with 200. @returns {Verdict} */
export function admitted(body) {
  const capacity = body.reservations?.[0] ?? {};
  return {
    kind: "fits", asked: capacity.asked ?? null, free: capacity.free ?? null, matching: capacity.matching ?? null,
    resources: capacity.resources ?? [], limits: body.limits ?? null,
    start: Date.parse(body.lease?.start), end: Date.parse(body.lease?.end),
  };
}

/** The verdict of a problem. @returns {Verdict} */
export function verdictOf(problem) {
  const { status, code, detail, body = {} } = problem;
  const common = { code, detail, status };
  if (status === 409 && code === "not_enough_resources") return refused(body, common);
  if (status === 403 && code === "limit_exceeded") {
    const { limit, scope, unit, allowed, used, asked } = body;
    return { kind: "limited", ...common, limit, scope, unit, allowed, used, asked };
  }
  if (status === 412) return { kind: "changed", ...common, etag: body.etag ?? null };
  if (status === 404) return { kind: "gone", ...common };
  if (status === 401) return { kind: "signed-out", ...common };
  if (!status || status >= 500 || status === 429) return { kind: "down", ...common };
  return { kind: "invalid", ...common, errors: body.errors ?? [] };
}

/** Whether a request that failed like this may have been carried out all the same. */
export function isOutcomeUnknown({ status, code }) {
  return !status || status >= 500 || code === "request_under_way";
}

function refused(body, common) {
  const alternatives = (body.alternatives ?? []).slice(0, 3).map((each, index) => ({
    letter: "ABC"[index], differs: each.differs, start: Date.parse(each.start), end: Date.parse(each.end), amount: each.amount,
  }));
  const blockers = (body.blocked_by ?? []).map((each) => ({
    id: each.lease_id ?? null, name: each.lease_name ?? "", start: Date.parse(each.start), end: Date.parse(each.end),
  }));
  return { kind: "refused", ...common, asked: body.asked ?? null, free: body.free ?? null, matching: body.matching ?? null,
    missing: body.missing ?? null, blockers, alternatives };
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
