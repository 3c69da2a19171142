// The form of a new lease, with a dry run while the user fills it.

import { api, get, onChange, post, requestKey } from "../api.js";
import {
  announce, button, clearErrors, debounce, field, filledIn, h, icon, link, loading, plain, problemNote, replace,
  setError,
} from "../dom.js";
import {
  exactDuration, reminderBody, reminderFields, reservationFields, resourceTypes, titleOf, windowBody, windowFields,
  windowTimes,
} from "../lease/fields.js";
import { refusal } from "../lease/refusals.js";
import { counted, note } from "../lease/words.js";
import { limitMeters } from "../tables/table.js";
import { duration, iso, range, serverNow, utc, utcRange } from "../time.js";

const REST = 400; // ms after the last key before the form is checked
let draft = null; // what was filled in when the page was left

function fromAddress(params, types) {
  if (![...params.keys()].length) return null;
  const type = types.includes(params.get("type")) ? params.get("type") : defaultType(types);
  const date = (key) => {
    const value = new Date(params.get(key) || NaN);
    return Number.isNaN(value.getTime()) ? null : value;
  };
  const [start, end] = [date("start"), date("end")];
  const amount = Number(params.get("amount")) || null;
  const values = type === "physical:host" ? { max: amount ?? 1, min: amount ?? 1 } : { ...(amount ? { amount } : {}) };
  if (params.get("properties")) values.resource_properties = params.get("properties");
  const when = start ? { start: "at", date: start, ...(end ? { until: "end", end } : {}) }
    : params.get("start") === "asap" ? { start: "asap", ...waited(params) } : {};
  return { name: params.get("name") || "", reservations: [{ type, params: values }], when, reminders: {} };
}

function waited(params) {
  const seconds = Number(params.get("wait"));
  return seconds > 0 ? { queue: {}, duration: exactDuration(seconds) } : {};
}

function defaultType(types) {
  return types.includes("physical:host") ? "physical:host" : types[0];
}

export async function mount(element, context) {
  context.title("Reserve");
  if (!context.me.allowed["leases:post"]) return forbidden(element);
  const page = h("div", { class: "page new" }, h("h1", {}, "Reserve"));
  const body = h("div");
  page.append(body);
  replace(element, page);
  let form = null;
  await loading(body, async () => {
    const types = await resourceTypes();
    form = new RequestForm(context, types, fromAddress(context.params, [...types.keys()]) || draft);
    return form.element;
  }, "resource types");
  form?.check();
  return () => form?.close();
}

function forbidden(element) {
  replace(element, h("div", { class: "page" }, h("h1", {}, "Reserve"),
    h("p", {}, "Your role in this project may not reserve. Ask an administrator of the project for the role member.")));
}

class RequestForm {
  constructor(context, types, start) {
    this.context = context;
    this.types = types;
    this.key = null; // of the request whose outcome is not known
    this.parts = [];
    const { name = "", reservations = [], when = {}, reminders = {} } = start || {};
    this.schedule = debounce(() => this.check(), REST);
    const changed = () => this.schedule();
    this.name = h("input", { name: "name", required: true, maxlength: 80, value: name, autocomplete: "off" });
    this.list = h("div", { class: "stack" });
    this.when = windowFields({ prefilled: when, mayWait: () => this.mayWait(), changed });
    this.reminders = reminderFields({ prefilled: reminders, changed });
    this.problem = h("div", { role: "alert" });
    this.checks = new Checks({
      choose: (...values) => this.choose(...values), take: (from, to) => this.take(from, to),
      wait: (seconds) => this.wait(seconds),
    });
    this.element = this.build(changed);
    const first = reservations.length ? reservations : [{ type: defaultType([...types.keys()]), params: {} }];
    for (const { type, params } of first) if (types.has(type)) this.add(type, params);
    this.stop = onChange(changed);
    this.showLimits();
  }

  build(changed) {
    this.send = h("button", { type: "submit", class: "button primary", id: "reserve" }, "Reserve");
    const listen = { onsubmit: (event) => this.submit(event), oninput: changed, onchange: changed };
    this.form = h("form", { class: "columns request", novalidate: true, "aria-label": "New lease", ...listen },
      h("div", { class: "asked" },
        h("div", { class: "card" }, field("Name", this.name, "1 to 80 characters; it need not be unique.")),
        this.list, this.adder(), this.when.element, this.reminders.element),
      h("div", { class: "beside" }, this.checks.result, this.checks.windows, this.checks.limits),
      h("div", { class: "send" }, this.problem,
        h("div", { class: "actions" }, this.send, button("Hold for some minutes", () => this.hold(), { id: "hold" }),
          button("Clear the form", () => this.clear(), { kind: "quiet" }))));
    return this.form;
  }

  adder() {
    const names = [...this.types.keys()];
    if (!names.length) return note("care", "warning",
      h("p", {}, "This service offers no resource types. Ask your operator."));
    const select = h("select",
      { "aria-label": "Type of the reservation to add", value: defaultType(names), id: "add-type" },
      names.map((type) => h("option", { value: type }, titleOf(this.types, type))));
    const addOne = () => this.add(select.value, {}).element.querySelector("input, select, textarea")?.focus();
    const add = button([icon("plus"), "Add a reservation"], addOne, { id: "add-reservation" });
    return h("div", { class: "adder" }, select, add);
  }

  add(type, params) {
    const fields = reservationFields(this.types, type, params, { changed: () => this.schedule() });
    const remove = button("Remove", () => {
      this.parts.splice(this.parts.indexOf(fields), 1);
      fields.element.remove();
      this.arrange();
    }, { kind: "small", "aria-label": `Remove the reservation of ${titleOf(this.types, type)}` });
    fields.remove = remove;
    fields.element.append(h("div", { class: "actions end" }, remove));
    this.parts.push(fields);
    this.list.append(fields.element);
    this.arrange();
    return fields;
  }

  arrange() {
    for (const part of this.parts) part.remove.hidden = this.parts.length < 2;
    this.when.shown();
    this.schedule();
  }

  mayWait() {
    return this.context.me.features.provisioning && this.parts.some(({ type }) => type === "physical:host");
  }

  body() {
    const choice = this.when.read();
    const window = windowBody(choice);
    if (!window || !this.parts.length) return null;
    const times = windowTimes(choice, serverNow());
    const reservations = this.parts.map((part) => ({ resource_type: part.type, params: part.read() }));
    return { name: this.name.value.trim(), ...window,
      ...reminderBody(this.reminders.read(), times, choice.start === "asap"), reservations };
  }

  check() {
    this.schedule.cancel();
    this.reminders.element.hidden = this.when.read().start === "asap"; // Its start is not known yet.
    const body = this.isComplete() ? this.body() : null;
    return this.checks.run(body && { ...body, name: body.name || "check" }, windowTimes(this.when.read(), serverNow()));
  }

  isComplete() {
    const isOptional = (control) => control === this.name || control.disabled || !control.willValidate;
    return [...this.form.elements].every((control) => isOptional(control) || control.validity.valid);
  }

  choose(alternative, index) {
    const part = this.parts[index];
    if (alternative.differs === "fewer") part?.setAmount(alternative.amount);
    else if (alternative.differs === "other") part?.set("resource_properties", "");
    if (alternative.differs !== "fewer") this.take(new Date(alternative.start), new Date(alternative.end));
    else this.check();
    announce("The form has the alternative now.");
  }

  take(from, to) {
    this.when.set(from, to);
    this.check();
  }

  wait(seconds) {
    this.when.enqueue(seconds);
    this.check();
    announce("The lease now waits until enough is free, if you reserve it.");
    this.send.focus();
  }

  async submit(event) {
    event.preventDefault();
    if (this.send.disabled) return;
    clearErrors(this.form);
    replace(this.problem);
    if (!filledIn(this.form)) return;
    const body = this.body();
    if (body) await this.post(body, requestKey());
  }

  /** Create an offer: it has the resources, but is no lease until the user accepts it. */
  async hold() {
    replace(this.problem);
    const { wait, ...body } = (filledIn(this.form) && this.body()) || {};
    if (!body.name) return;
    try {
      const offer = await post("/v2/offers", body);
      announce(`Held: ${offer.name}.`);
      this.context.navigate("/console/leases");
    } catch (error) {
      this.refused(error, body);
    }
  }

  async post(body, key) {
    this.checks.stop();
    this.send.disabled = true;
    this.send.textContent = "Reserving";
    try {
      const { lease, unknown, error } = await reserve(body, key);
      if (unknown) return this.unknown(body, key, error);
      draft = null;
      this.isDone = true;
      announce(`Reserved: ${lease.name}.`);
      this.context.navigate(`/console/leases/${lease.id}`);
    } catch (error) {
      this.refused(error, body);
    }
    this.send.disabled = false;
    this.send.textContent = "Reserve";
    return null;
  }

  unknown(body, key, error) {
    const again = button("Try again", () => { replace(this.problem); this.post(body, key); },
      { kind: "primary", id: "try-again" });
    const discard = button("Change the form", () => {
      replace(this.problem);
      this.send.disabled = false;
      this.send.textContent = "Reserve";
    });
    this.send.textContent = "Reserve";
    replace(this.problem, note("bad", "refused",
      h("p", {}, h("b", {}, "It is not known whether this was reserved. "), plain(error.detail)),
      h("p", {}, "Try again: the service carries out the same request only once. ",
        "Before you change the form, look into ",
        link("/console/leases", "your leases"), "."),
      h("div", { class: "actions" }, again, discard)));
    again.focus();
  }

  refused(error, body) {
    const located = (error.body?.errors || []).map((item) =>
      [item, item.pointer && this.locate(item.pointer.replace(/^#\//, "").split("/"))]);
    for (const [item, control] of located) if (control) setError(control, item.detail);
    located.find(([, control]) => control)?.[1].focus();
    const rest = located.filter(([, control]) => !control).map(([item]) => item.detail);
    if (!located.length || rest.length) replace(this.problem, problemNote(error, rest));
    if (error.code === "not_enough_resources" || error.code === "limit_exceeded") {
      replace(this.problem, note("bad", "refused",
        h("p", {}, "This was not reserved: what you ask for is not free any more, or is beyond your limits. ",
          h("a", { href: "#check" }, "See what fits instead"), ".")));
      this.checks.refused(error, body, windowTimes(this.when.read(), serverNow()));
      this.checks.result.scrollIntoView({ block: "nearest" });
    }
  }

  locate([key, index, part, ...rest]) {
    if (key === "name") return this.name;
    if (key === "reservations") return part === "params" ? this.parts[index]?.locate(rest) : null;
    if (key === "events" || key === "before_end") return this.reminders.locate([key, index, part]);
    return this.when.locate([key, index]);
  }

  async showLimits() {
    if (!this.context.me.allowed["limits:get"]) return;
    try {
      const bars = limitMeters(await get("/v2/limits"));
      if (bars && this.checks.limits.hidden) {
        replace(this.checks.limits, bars);
        this.checks.limits.hidden = false;
      }
    } catch {
      // The check says what goes beyond a limit.
    }
  }

  clear() {
    this.isDone = true;
    draft = null;
    this.context.navigate("/console/new");
  }

  close() {
    this.schedule.cancel();
    this.checks.stop();
    this.stop();
    if (this.isDone) return;
    draft = { name: this.name.value, when: this.when.read(), reminders: draftReminders(this.reminders.read()),
      reservations: this.parts.map((part) => ({ type: part.type, params: part.read() })) };
  }
}

function draftReminders({ before, events }) {
  return { before, events: events.map(({ type, at }) => ({ type, date: at })) };
}

// What the service says about a request while the user fills the form

const AHEAD = 30 * 86400_000; // ms that the search looks ahead
const WINDOWS = 4;

/** The checks of a request, each drawn into its own place. */
class Checks {
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

  async dryRun({ wait, ...body }, times, signal) {
    const asked = wait ? { ...body, end_by: iso(new Date(times.end.getTime() + AHEAD)) } : body;
    try {
      this.fits(await post("/v2/leases?dry_run=true", asked, { signal }), wait);
    } catch (error) {
      if (wait && error.body?.can_wait) {
        replace(this.verdict, quiet("Nothing is free in the next 30 days. The lease waits."));
      } else if (error.name !== "AbortError") this.refused(error, body, times);
    }
  }

  fits({ lease, reservations, limits, not_checked: unchecked }, wait) {
    const capacities = reservations.filter(({ asked }) => asked > 0);
    const lines = capacities.map((item) => h("li", {}, icon("check"), " ", freeText(item)));
    replace(this.verdict, h("div", { class: "stack" },
      h("p", {}, h("b", {}, "This fits. "), range(new Date(lease.start), new Date(lease.end)), ", ",
        h("span", { class: "quiet" }, utcRange(new Date(lease.start), new Date(lease.end))), "."),
      h("ul", {}, lines),
      wait ? quiet("Leases that wait already may come first. You get an earlier start if others end early.") : null,
      unchecked?.includes("enforcement") ? quiet("The enforcement service of your cloud decides when you reserve.")
        : null));
    const bars = limitMeters(limits, { title: false });
    this.limits.hidden = !bars;
    if (bars) replace(this.limits, h("h2", {}, "Limits with this lease"), bars);
  }

  refused(error, body, times) {
    const choose = (alternative) => this.handlers.choose(alternative, error.body.reservation ?? 0);
    const wait = () => this.handlers.wait(Math.round((times.end - times.start) / 1000));
    replace(this.verdict, error.status >= 400 && error.status < 500
      ? refusal(error, { ...times, reservations: body.reservations, choose, wait }) : problemNote(error));
  }

  async search({ reservations, duration: seconds, end, end_by: by }, times, signal) {
    const span = seconds || Math.round((times.end - times.start) / 1000);
    if (!reservations.length || !(span > 0)) return replace(this.list, quiet("Fill in the form."));
    const last = by || iso(new Date(Math.max(serverNow().getTime() + AHEAD, times.end.getTime())));
    try {
      const { windows, forbidden } = await post("/v2/availability/search",
        { reservations, duration: span, start_after: "now", end_by: last, limit: WINDOWS }, { signal });
      replace(this.list, windows.length ? this.windowList(windows)
        : forbidden.length ? quiet(forbidden[0].detail) : quiet(`No ${duration(span)} in a row ${by ? "until then" : "in the next 30 days"}.`));
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
  const units = matching !== null && type === "physical:host" ? ` of ${matching}` : "";
  return `${counted(asked, type)}; ${free}${units} free all through`;
}

function searchProblem(error) {
  if (error.status === 400) return "Fill in the form.";
  return plain(error.detail || "The search has failed.");
}

async function reserve(body, key) {
  try {
    const { body: lease } = await api("POST", "/v2/leases", { body, headers: { "Idempotency-Key": key } });
    return { lease };
  } catch (error) {
    const isUnknown = error.status === 0 || error.status >= 500 || error.code === "request_under_way";
    if (isUnknown) return { unknown: true, error };
    throw error;
  }
}
