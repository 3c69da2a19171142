// What the service says about a request while the user fills the form: the dry run and free windows.

import { api, post } from "../api.js";
import { h, icon, plain, replace } from "../dom.js";
import { problemNote } from "../forms.js";
import { limitMeters } from "../lease/limits.js";
import { refusal } from "../lease/refusal.js";
import { counted, unitOf } from "../lease/words.js";
import { duration, iso, range, serverNow, utc } from "../time.js";

const AHEAD = 30 * 86400_000; // ms that the search looks ahead
const WINDOWS = 4;

/** The checks of a request, each drawn into its own place. A newer check aborts the older. */
export class Checks {
  /** @param {{choose: function(object, number), take: function(Date, Date)}} handlers of what the user chooses */
  constructor(handlers) {
    this.handlers = handlers;
    this.result = h("div", { class: "card", id: "check" }, h("h2", {}, "Check"),
      this.verdict = h("div", { role: "status" }, quiet("Fill in the form.")));
    this.windows = h("div", { class: "card", id: "windows" }, h("h2", {}, "Next free times"),
      this.list = h("div", {}, quiet("Fill in the form.")));
    this.limits = h("div", { class: "card", hidden: true, id: "request-limits" });
    this.aborter = new AbortController();
  }

  stop() {
    this.aborter.abort();
  }

  /** Check `body`, the body of the POST; null while it is incomplete. `times`: `{start, end}`. */
  async run(body, times) {
    this.aborter.abort();
    this.aborter = new AbortController();
    const { signal } = this.aborter;
    if (!body) {
      replace(this.verdict, quiet("Fill in the form."));
      replace(this.list, quiet("Fill in the form."));
      return;
    }
    await Promise.all([this.dryRun(body, times, signal), this.search(body, times, signal)]);
  }

  async dryRun(body, times, signal) {
    try {
      const answer = await post("/v2/leases?dry_run=true", body, { signal });
      this.fits(answer);
    } catch (error) {
      if (error.name !== "AbortError") this.refused(error, body, times);
    }
  }

  fits({ lease, reservations, limits, not_checked: unchecked }) {
    const capacities = reservations.filter(({ asked }) => asked > 0);
    const lines = capacities.map((item) => h("li", {}, icon("check"), " ", freeText(item)));
    replace(this.verdict, h("div", { class: "stack" },
      h("p", {}, h("b", {}, "This fits. "), range(new Date(lease.start), new Date(lease.end)), ", ",
        h("span", { class: "quiet" }, `${utc(new Date(lease.start))} to ${utc(new Date(lease.end))}`), "."),
      h("ul", {}, lines),
      unchecked?.includes("enforcement") ? quiet("The enforcement service of your cloud decides when you reserve.")
        : null));
    const bars = limitMeters(limits, { title: false });
    this.limits.hidden = !bars;
    if (bars) replace(this.limits, h("h2", {}, "Limits with this lease"), bars);
  }

  refused(error, body, times) {
    const types = body.reservations.map((item) => item.resource_type);
    const choose = (alternative) => this.handlers.choose(alternative, error.body.reservation ?? 0);
    replace(this.verdict, error.status >= 400 && error.status < 500
      ? refusal(error, { ...times, types, choose }) : problemNote(error));
  }

  async search({ reservations, duration: seconds, end, end_by: by }, times, signal) {
    const span = seconds || Math.round((times.end - times.start) / 1000);
    if (!reservations.length || !(span > 0)) return replace(this.list, quiet("Fill in the form."));
    const last = by || iso(new Date(Math.max(serverNow().getTime() + AHEAD, times.end.getTime())));
    try {
      const { windows } = await post("/v2/availability/search",
        { reservations, duration: span, start_after: "now", end_by: last, limit: WINDOWS }, { signal });
      replace(this.list, windows.length ? this.windowList(windows)
        : quiet(`No ${duration(span)} in a row ${by ? "until then" : "in the next 30 days"}.`));
    } catch (error) {
      if (error.name !== "AbortError") replace(this.list, quiet(searchProblem(error)));
    }
    return end;
  }

  windowList(windows) {
    return h("ul", { class: "stack" }, windows.map((item) => {
      const [start, end, latest] = [item.start, item.end, item.latest_start].map((text) => new Date(text));
      const text = latest - start >= 60_000 ? `or later, to start until ${range(latest, latest).split(" to ")[0]}`
        : utc(start);
      return h("li", {}, h("button", { type: "button", class: "window", onclick: () => this.handlers.take(start, end) },
        h("span", { class: "strong" }, range(start, end)), h("span", { class: "small quiet" }, text)));
    }));
  }
}

function quiet(text) {
  return h("p", { class: "quiet" }, text);
}

function freeText({ resource_type: type, asked, free, matching }) {
  if (typeof free !== "number") return counted(asked, type);
  const units = matching !== null && unitOf(type) === "host" ? ` of ${matching}` : "";
  return `${counted(asked, type)}; ${free}${units} free all through`;
}

function searchProblem(error) {
  if (error.status === 400) return "Fill in the form.";
  return plain(error.detail || "The search has failed.");
}

/** Send the request; resolves to `{lease}`, or `{unknown: true}` if it is not known what became of it. */
export async function reserve(body, key) {
  try {
    const { body: lease } = await api("POST", "/v2/leases", { body, headers: { "Idempotency-Key": key } });
    return { lease };
  } catch (error) {
    const isUnknown = error.status === 0 || error.status >= 500 || error.code === "request_under_way";
    if (isUnknown) return { unknown: true, error };
    throw error;
  }
}
