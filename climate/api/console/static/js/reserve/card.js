// The card beside the selection; on a phone, a sheet at the bottom. It shows a state and reports what people do.

import { button, clearErrors, field, h, icon, link, momentField, name, plain, replace, setError, uid } from "../dom.js";
import { alternativeLines, blockerLine, limitLines, refusalHeading, shortageLine, waitButton } from "../lease/refusals.js";
import { noun } from "../lease/words.js";
import { span } from "../time.js";
import { isUnchanged } from "./selection.js";
import * as wording from "./wording.js";

export class Card {
  #on;
  #parts;
  #shown = {};

  constructor(on) {
    this.#on = on;
    this.#parts = this.#build();
    this.element = this.#parts.element;
    this.element.hidden = true;
  }

  get name() {
    return this.#parts.name.value.trim();
  }

  get hasFocus() {
    return this.element.contains(document.activeElement);
  }

  show(model) {
    const focused = this.hasFocus ? document.activeElement : null;
    this.element.hidden = !model;
    if (!model) {
      this.#shown = {};
      return;
    }
    const { state, type } = model;
    const kind = kindOf(state);
    this.element.dataset.state = kind;
    this.element.classList.toggle("bad", ["refused", "limited", "invalid", "unknown", "gone"].includes(kind));
    this.#heading(kind, model);
    this.#window(state);
    replace(this.#parts.facts, facts(kind, model));
    this.#alternatives(kind, state, type);
    this.#fields(kind, model);
    this.#actions(kind, state, type);
    if (focused === this.element && kind !== "unchecked") this.focus();
    else if (focused && !focused.checkVisibility()) this.#refocus(focused);
  }

  focus() {
    const { element, name: input, list } = this.#parts;
    if (element.dataset.state === "unchecked") return element.focus({ preventScroll: true });
    const field_ = input.closest(".field");
    const target = !field_.hidden ? input : list.querySelector("button") ?? element.querySelector(".actions button")
      ?? element;
    target.focus({ preventScroll: true });
    if (target === input) input.select();
    return undefined;
  }

  /** Bring "taken 2 s ago" up to date. */
  tick(now, takenAt) {
    const line = this.element.querySelector(".taken");
    if (line) line.textContent = takenLine(now - takenAt);
  }

  /** Put a name into its field, unless somebody has typed one. */
  propose(text) {
    const { name: input } = this.#parts;
    if (!input.dataset.typed && !input.value) input.value = text;
  }

  forgetName() {
    const { name: input, form } = this.#parts;
    delete input.dataset.typed;
    input.value = "";
    clearErrors(form);
  }

  complain(text) {
    clearErrors(this.#parts.form);
    setError(this.#parts.name, text);
    this.#parts.name.focus();
  }

  #build() {
    const on = this.#on;
    const heading = h("h2", { id: uid("reserve") });
    const when = h("p", { class: "when" });
    const facts_ = h("div", { class: "facts" });
    const list = h("ul", { class: "alternatives" });
    const input = h("input", { maxlength: 80, autocomplete: "off", "data-field": "name" });
    input.addEventListener("input", () => { input.dataset.typed = "yes"; });
    const named = field("Name", input);
    const times = this.#times();
    const actions = h("div", { class: "actions" });
    const form = h("form", { novalidate: true }, named, list, times.element, actions);
    form.addEventListener("submit", (event) => { event.preventDefault(); on.submit(); });
    const element = h("section", { class: "reserve-card", role: "dialog", "aria-labelledby": heading.id, tabindex: -1 },
      heading, when, facts_, form);
    element.addEventListener("keydown", (event) => this.#key(event));
    list.addEventListener("focusin", (event) => this.#letter(event, on.focus));
    list.addEventListener("pointerover", (event) => this.#letter(event, on.focus));
    return { element, heading, when, facts: facts_, list, name: input, named, times, actions, form };
  }

  #times() {
    const changed = () => this.#typedTimes();
    const start = momentField("Start", { changed });
    const end = momentField("End", { changed });
    start.input.dataset.field = "start";
    end.input.dataset.field = "end";
    const amount = h("input", { type: "number", min: 1, step: 1, inputmode: "numeric", "data-field": "amount" });
    amount.addEventListener("change", () => this.#on.amount(Number(amount.value)));
    const element = h("details", { class: "times" }, h("summary", {}, "Set times and amount"),
      h("div", { class: "stack" },
      start.element, end.element, field("Amount", amount)));
    return { element, start, end, amount };
  }

  // The field itself says when a time is missing or does not exist.
  #typedTimes() {
    const { element, start, end } = this.#parts.times;
    clearErrors(element);
    const [first, last] = [start.read(), end.read()];
    const problem = first && last ? this.#on.times(first.getTime(), last.getTime()) : "";
    if (problem) setError(end.input, problem);
  }

  #letter(event, report) {
    const item = event.target.closest("[data-letter]");
    if (item) report(item.dataset.letter);
  }

  #key(event) {
    if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      return this.#on.discard();
    }
    if (event.key === "Enter" && event.target === this.element) return this.#on.submit();
    const typing = event.target.closest("input, textarea, select");
    const plainKey = !event.ctrlKey && !event.metaKey && !event.altKey;
    const letter = event.key.toUpperCase();
    if (typing || !plainKey || !/^[A-E]$/.test(letter)
      || !this.element.querySelector(`[data-letter="${letter}"]`)) return;
    event.preventDefault();
    this.#on.choose(letter);
  }

  #heading(kind, { state, type }) {
    const text = headingText(kind, state, type);
    const sign = { refused: "refused", limited: "refused", invalid: "warning", unknown: "warning", down: "warning",
      done: "check" }[kind];
    replace(this.#parts.heading, sign && icon(sign), h("span", {}, plain(text)));
  }

  #window(state) {
    const { selection } = state;
    const before = selection.purpose === "change" && (selection.start !== selection.lease.start
      || selection.end !== selection.lease.end);
    replace(this.#parts.when,
      selection.purpose === "change" && state.phase !== "done"
        && [h("span", { class: "strong" }, name(selection.lease.name)), h("br")],
      h("b", {}, span(selection)), h("br"), h("span", { class: "quiet" }, wording.utcSpan(selection)),
      before && [h("br"), h("span", { class: "quiet" }, `Before: ${span(selection.lease)}`)]);
    this.#parts.when.hidden = kindOf(state) === "refused" && selection.purpose === "new";
  }

  #fields(kind, { state, type }) {
    const { named, name: input, times } = this.#parts;
    const { selection } = state;
    const isNew = selection.purpose === "new";
    const inTimes = kind !== "done" && times.element.contains(document.activeElement);
    const isNamed = isNew && ["fits", "unchecked", "down", "signed-out", "sending", "unknown"].includes(kind);
    named.hidden = !isNamed && (kind === "done" || document.activeElement !== input);
    times.element.hidden = ["done", "sending", "unknown", "gone"].includes(kind) && !inTimes;
    input.readOnly = kind === "sending" || kind === "unknown";
    const fixed = !isNew && selection.start === selection.lease.start && selection.part === "end";
    if (!inTimes) times.start.set(new Date(selection.start));
    if (!inTimes) times.end.set(new Date(selection.end));
    if (document.activeElement !== times.amount) times.amount.value = String(selection.amount);
    times.start.input.disabled = fixed;
    const hasAmount = isNew && selection.place !== "rows";
    times.amount.closest(".field").hidden = !hasAmount;
    times.element.querySelector("summary").textContent = `Set times${hasAmount ? " and amount" : ""}`;
    times.amount.labels[0].textContent = `Number of ${noun(type)}`;
  }

  #alternatives(kind, state, type) {
    const all = offers(kind, state);
    const key = JSON.stringify([all.map(({ letter, start, end, amount, differs }) =>
      [letter, start, end, amount, differs]), state.selection.amount]);
    if (this.#shown.alternatives === key) return;
    this.#shown.alternatives = key;
    replace(this.#parts.list, all.map((each) => this.#alternative(each, lines(each, state, type))));
    this.#parts.list.hidden = !all.length;
  }

  #alternative({ letter, differs }, [first, second]) {
    return h("li", {}, h("button", { type: "button", class: "alternative", "data-letter": letter,
      "aria-keyshortcuts": letter,
      onclick: () => this.#on.choose(letter) },
    h("span", { class: "letter", "aria-hidden": "true" }, letter),
    h("span", { class: "grow" }, h("span", { class: "strong" }, plain(first)),
      h("span", { class: "quiet small" }, second)),
    differs && h("kbd", {}, letter))); // Windows stand beside the name, which takes letters.
  }

  #actions(kind, state, type) {
    const key = JSON.stringify([kind, state.phase, state.watching, wording.action(state.selection),
      state.selection.fromNow]);
    if (this.#shown.actions === key) return;
    this.#shown.actions = key;
    replace(this.#parts.actions, actionsOf(kind, state, this.#on, type));
  }

  #refocus(old) {
    const key = old.dataset?.action;
    const same = key && this.element.querySelector(`[data-action="${key}"]`);
    (same ?? this.element.querySelector(".actions button, .alternatives button")
      ?? this.element).focus({ preventScroll: true });
  }
}

function kindOf({ phase, selection, verdict }) {
  if (phase === "sending" || phase === "unknown" || phase === "done") return phase;
  if (isUnchanged(selection)) return "unchanged";
  return verdict ? verdict.kind : "unchecked";
}

function headingText(kind, { selection, verdict, result }, type) {
  if (kind === "refused") return refusalHeading(verdict, selection, type);
  if (kind === "limited") return limitLines(verdict)[0];
  if (kind === "unknown") return selection.purpose === "new" ? "It is not known whether this was reserved"
    : "It is not known whether this was changed";
  if (kind === "gone") return "This lease does not exist any more";
  if (kind === "done") return `${selection.purpose === "new" ? "Reserved" : "Changed"}: ${result.name}`;
  return wording.heading(selection, type);
}

function facts(kind, { state, type, session }) {
  const { selection, verdict } = state;
  const note = state.note ? h("p", { class: "changed" }, plain(state.note)) : null;
  const taken = state.takenAt ? h("p", { class: "taken bad-text" }, takenLine(session.now - state.takenAt)) : null;
  const body = {
    unchecked: () => h("p", { class: "quiet" }, session.blocked || "Checking what is free."),
    unchanged: () => h("p", { class: "quiet" }, "Move it with the arrow keys or by dragging, or set its times."),
    form: () => h("p", {},
      `To reserve ${noun(type)} takes more than a number: continue in the form, which has these times.`),
    sending: () => h("p", { class: "quiet" }, "Waiting for the answer of the service."),
    fits: () => fitFacts(verdict, selection, type),
    refused: () => refusalFacts(state, type),
    limited: () => limitFacts(verdict),
    invalid: () => h("p", {}, plain(verdict.detail)),
    changed: () => h("p", {}, "The lease has changed. Checking again."),
    gone: () => h("p", {}, "Somebody has deleted it, or it is over."),
    "signed-out": () => h("p", {}, "Your session has ended. The selection stays here; sign in and try again."),
    down: () => h("p", {}, verdict.status === 429 ? "Too many checks at once; the next one follows in some seconds."
      : "The service does not answer, so reserving has to wait. The check is repeated every few seconds."),
    unknown: () => h("p", {}, "The service did not answer. ", h("b", {}, "Try again"), selection.purpose === "new"
      ? " sends the same request, which cannot reserve twice." : " first looks whether the change was made."),
    done: () => doneFacts(state),
  }[kind];
  return [note, taken, body && body()];
}

function fitFacts(verdict, selection, type) {
  const limits = wording.limitsLine(verdict.limits);
  return [h("p", {}, wording.freeSentence(verdict, selection, type)),
    limits && h("p", { class: "quiet" }, `Within your limits: ${limits}.`)];
}

function refusalFacts({ verdict, selection, watching }, type) {
  return [shortageLine(verdict, selection, type), blockerLine(verdict.blockers, selection),
    watching && h("p", { class: "watching" }, "The check is repeated with each change while this page is open."),
    verdict.alternatives.length ? null
      : h("p", {}, "Nothing similar is free in the next weeks. Try another time, fewer, or other properties.")];
}

function limitFacts(verdict) {
  const [, sentence] = limitLines(verdict);
  const { allowed, used, asked } = verdict;
  const total = Math.max(allowed ?? 0, (used ?? 0) + (asked ?? 0));
  return [h("p", {}, plain(sentence), " ", link("/console/limits", "Show the limits"), "."), total > 0
    && limitBar(allowed, used ?? 0, asked ?? 0, total)];
}

function limitBar(allowed, used, asked, total) {
  const part = (kind, from, size) => {
    const element = h("span", { class: kind });
    element.style.left = `${100 * from / total}%`;
    element.style.width = `${100 * size / total}%`;
    return element;
  };
  const mark = part("mark", Math.min(allowed, total), 0);
  return h("div", { class: "limit-bar", role: "img",
    "aria-label": `${used} used and ${asked} requested, ${allowed} allowed` },
    part("used", 0, used), part("asked", used, asked), mark);
}

function doneFacts({ result, selection }) {
  const started = result.start <= Date.now();
  return h("p", {}, link(`/console/leases/${encodeURIComponent(result.id)}`, ["Open ", name(result.name)]),
    selection.purpose === "new" ? (started ? ". It starts now." : `. It starts ${span(result).split(" to ")[0]}.`)
      : ".");
}

// Alternatives of a refusal, or the other windows that a search has found.
function offers(kind, { selection, verdict, windows }) {
  if (kind === "refused") return verdict.alternatives;
  if (!["fits", "unchecked"].includes(kind)) return [];
  return windows.filter(({ start, end }) => start !== selection.start || end !== selection.end);
}

function lines(each, state, type) {
  if (each.differs) return alternativeLines(each, state.selection, type);
  return [span(each), wording.utcSpan(each)];
}

function actionsOf(kind, state, on) {
  const { selection, watching } = state;
  const [label, busy] = wording.action(selection);
  const isNew = selection.purpose === "new";
  const send = (...content) => h("button", { type: "submit", class: "button primary", "data-action": "reserve" },
    ...content);
  const discard = button("Discard", on.discard, { "data-action": "discard" });
  const options = isNew && button("Options", on.options, { "data-action": "options" });
  const watch = button(watching ? "Stop watching" : "Tell me when it fits", () => on.watch(!watching),
    { "data-action": "watch" });
  const retry = (text) => button(text, on.retry, { kind: "primary", "data-action": "retry" });
  return {
    fits: () => [send(label, h("kbd", {}, "Enter")), options, discard],
    unchecked: () => [send(label, h("kbd", {}, "Enter")), options, discard],
    sending: () => [h("button", { type: "button", class: "button primary", "aria-disabled": "true",
      "data-action": "reserve" }, busy)],
    unchanged: () => [discard],
    form: () => [button("Continue", on.options, { kind: "primary", "data-action": "options" }), discard],
    refused: () => [watch, isNew && state.verdict.canWait && waitButton(on.wait), discard],
    limited: () => [options, discard],
    invalid: () => [options, discard],
    // The button stays while the lease is read again: the focus must not end up on "Discard".
    changed: () => [send(label, h("kbd", {}, "Enter")), discard],
    gone: () => [discard],
    "signed-out": () => [retry("Sign in"), discard],
    down: () => [retry("Check now"), discard],
    unknown: () => [retry("Try again"), button("Leave it", on.discard, { "data-action": "discard" })],
    done: () => [button("Close", on.discard, { "data-action": "close" })],
  }[kind]?.() ?? [discard];
}

function takenLine(milliseconds) {
  const text = wording.agoText(milliseconds);
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}
