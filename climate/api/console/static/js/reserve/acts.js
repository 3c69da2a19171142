// What people do, by pointer, keys, card or bar, as events of the machine.

import { announce, confirm, name } from "../dom.js";
import { noun } from "../lease/words.js";
import { browsingIntent, selectedIntent } from "./gestures.js";
import {
  begin, beginChange, canChange, endMoved, fromNow, ghostsOf, hasStarted, isLocked, isOpen, isUnchanged,
  laterEnd, minute, moved, movedTo, ofAlternative, rowOf, spread, startMoved, stretched, withAmount, withRows,
  withWindow,
} from "./selection.js";
import { findSoonest } from "./search.js";
import { leaseOf } from "./service.js";

const DAY = 86_400_000;

/** Turns gestures, keys, and events of card and bar into events of the machine of `core`. */
export class Acts {
  #core;
  #rowAnchor = null;
  #rowFocus = null;

  constructor(core) {
    this.#core = core;
  }

  pointerEvents() {
    return {
      begin: (drag) => this.#begin(drag),
      drag: (drag, point) => this.#drag(drag, point),
      end: (drag) => this.#end(drag),
      cancel: (drag) => this.#core.restore(drag.before),
      selectionBox: () => this.#box(),
      mayChange: (hit, part) => this.#mayChange(hit, part),
    };
  }

  #box() {
    const { state, overlay, view } = this.#core;
    return state.phase === "resting" && overlay ? view.anchor(overlay) : null;
  }

  #mayChange({ interval }, part) {
    const core = this.#core;
    return core.may("leases:put") && canChange(leaseOf(interval.lease), part, core.times.now);
  }

  #begin(drag) {
    const core = this.#core;
    if (isLocked(core.state)) return false;
    core.bar.note("");
    drag.before = core.state;
    core.touch = drag.touch;
    if (drag.kind === "stretch") return this.#beginNew(drag);
    if (drag.kind.startsWith("lease-")) return this.#beginChange(drag.hit, drag.kind.slice(6), { held: true, drag });
    drag.from = core.state.selection;
    core.dispatch({ type: "hold" });
    return true;
  }

  #beginNew(drag) {
    const core = this.#core;
    const { hit } = drag;
    if (!this.#mayBegin(hit)) return false;
    const { times, view } = core;
    const time = view.snap(hit.time);
    if (time < times.now - times.step) return this.#refuse("This time is past.");
    const selection = this.#fresh(hit, time, drag.touch ? view.state.duration * 1000 : undefined);
    core.dispatch({ type: "select", selection, held: true });
    return true;
  }

  #mayBegin(hit) {
    const { view } = this.#core;
    if (this.#core.blocked()) return this.#refuse(this.#core.blocked());
    // A bucket of a quarter says nothing about a row at a certain hour.
    const isHost = this.#core.type === "physical:host";
    if (hit.area === "row" && !isHost) {
      return this.#refuse(`Reserve ${noun(this.#core.type)} in the topmost row, "Any matching".`);
    }
    if (hit.area === "row" && view.state.zoom === "quarter") return this.#refuse("Zoom in to reserve a certain host.");
    return hit.area === "band" || Boolean(hit.row?.id);
  }

  // Says why a gesture does nothing, to everybody: the note is an alert.
  #refuse(text) {
    this.#core.bar.note(text);
    return false;
  }

  #fresh(hit, time, length, tapped = false) {
    const { view, times } = this.#core;
    const { amount, properties } = view.state;
    const rows = hit.area === "row" ? [rowOf(hit.row)] : [];
    this.#rowAnchor = hit.area === "row" ? hit.row.index : null;
    this.#rowFocus = this.#rowAnchor;
    return begin({ place: hit.area === "row" ? "rows" : "band", rows, time, length, amount, properties, tapped },
      times);
  }

  #beginChange(hit, part, { held = false, drag = null } = {}) {
    const core = this.#core;
    const lease = leaseOf(hit.interval.lease);
    const { now } = core.times;
    if (!core.may("leases:put") || !canChange(lease, part, now)) {
      return this.#refuse(hasStarted(lease, now) && lease.end > now
        ? "This lease has started: only its end can change." : "This lease cannot change now.");
    }
    const selection = beginChange(lease, part, { place: "rows", rows: [rowOf(hit.row)], now });
    if (drag) drag.from = selection;
    core.rows = [];
    core.dispatch({ type: "select", selection, held });
    core.rebase();
    core.findRows(lease.id);
    return true;
  }

  #drag(drag, point) {
    const core = this.#core;
    const { view, state } = core;
    if (!isOpen(state)) return;
    const time = view.snap(point.time, { exact: point.exact });
    const times = point.exact ? { ...core.times, step: 60_000 } : core.times;
    core.dispatch({ type: "adjust", selection: this.#dragged(drag, point, time, times) });
  }

  #dragged(drag, point, time, times) {
    const { view, state } = this.#core;
    const { selection } = state;
    const kind = drag.kind.replace("lease-", "");
    if (kind === "stretch") return this.#overRows(stretched(selection, time, times), drag, point);
    const from = { ...drag.from, lease: selection.lease, rows: selection.rows };
    if (kind === "move") return movedTo(from, view.snap(from.start + point.time - drag.hit.time,
      { exact: point.exact }), times);
    return kind === "start" ? startMoved(from, time - from.start, times) : endMoved(from, time - from.end, times);
  }

  #overRows(selection, drag, point) {
    if (selection.place !== "rows") return selection;
    const { view } = this.#core;
    const box = view.element.getBoundingClientRect();
    const y = Math.min(Math.max(point.y, box.top), box.bottom - 2);
    const hit = view.hit(Math.min(Math.max(point.x, box.left + 2), box.right - 2), y);
    if (hit.area === "row" && hit.row?.id) this.#rowFocus = hit.row.index;
    return withRows(selection, this.#rowsBetween());
  }

  #rowsBetween() {
    const [first, last] = [this.#rowAnchor, this.#rowFocus].sort((a, b) => a - b);
    const rows = [];
    for (let index = first; index <= Math.min(last, first + 99); index += 1) {
      const row = this.#core.view.data.row(index);
      if (row) rows.push(rowOf({ ...row, index }));
    }
    return rows;
  }

  #end(drag) {
    const core = this.#core;
    core.dispatch({ type: "release" });
    const { selection } = core.state;
    if (!selection) return;
    if (isUnchanged(selection) && !drag.touch) return core.dispatch({ type: "discard" });
    if (!core.state.verdict) core.checkNow();
    // A finger needs no focus, which would open the keyboard over the sheet.
    if (!drag.touch) core.card.focus();
  }

  handleEvents() {
    const core = this.#core;
    return {
      begin: () => core.dispatch({ type: "hold" }),
      drag: (part, time) => {
        const { selection } = core.state;
        if (!isOpen(core.state)) return;
        const to = core.view.snap(time);
        const next = part === "start" ? startMoved(selection, to - selection.start, core.times)
          : endMoved(selection, to - selection.end, core.times);
        core.dispatch({ type: "adjust", selection: { ...next, part: spread(next, part) } });
      },
      end: () => {
        core.dispatch({ type: "release" });
        core.checkNow();
      },
    };
  }

  activate(event) {
    const hit = event.detail;
    const core = this.#core;
    const isTime = (hit.area === "band" || hit.area === "row") && !hit.heading;
    if (!isTime || isLocked(core.state)) return undefined;
    core.bar.note("");
    const ghost = hit.area === "band" && ghostsOf(core.state).find(({ start, end }) => start <= hit.time
      && hit.time < end);
    if (ghost) return this.#taken(event, () => this.choose(ghost.letter));
    if (this.#isSecondTap(hit)) return this.#taken(event, () => this.#tapEnd(hit));
    if (hit.interval?.lease) return this.#taken(event, () =>
      core.context.navigate(`/console/leases/${encodeURIComponent(hit.interval.lease.id)}`));
    // What is taken by others is nothing to open: the page says what it is.
    if (hit.interval && ![5, 6].includes(hit.interval.kind)) return undefined;
    if (hit.area === "row" && !hit.row?.id) return undefined;
    return this.#taken(event, () => this.#tapStart(hit));
  }

  #taken(event, action) {
    event.preventDefault();
    action();
  }

  #isSecondTap(hit) {
    const { state } = this.#core;
    const { selection } = state;
    return state.phase === "resting" && Boolean(selection?.tapped) && hit.time > selection.start
      && (selection.place === "band" ? hit.area === "band" : hit.area === "row"
        && hit.row?.id === selection.rows[0].id);
  }

  #tapStart(hit) {
    const core = this.#core;
    const { view, times } = core;
    if (!this.#mayBegin(hit)) return undefined;
    const snapped = view.snap(hit.time);
    if (snapped < times.now - times.step) return this.#refuse("This time is past.");
    core.touch = matchMedia("(pointer: coarse)").matches;
    core.dispatch({ type: "select", selection: this.#fresh(hit, snapped, view.state.duration * 1000, true) });
    return undefined;
  }

  #tapEnd(hit) {
    const core = this.#core;
    const { selection } = core.state;
    const end = Math.max(core.view.snap(hit.time), selection.start
      + Math.min(core.times.step, selection.end - selection.start));
    core.dispatch({ type: "adjust", selection: { ...endMoved(selection, end - selection.end, core.times),
      tapped: true } });
  }

  key(gridkey) {
    const { event, focus } = gridkey.detail;
    const core = this.#core;
    const selected = core.state.selection && core.state.phase !== "idle";
    const intent = selected ? selectedIntent(event, core.state) : browsingIntent(event);
    if (!intent) return;
    const handled = selected ? this.#selectedKey(intent) : this.#browsingKey(intent, focus);
    if (handled !== false) gridkey.preventDefault();
  }

  #selectedKey(intent) {
    const core = this.#core;
    if (intent.type === "discard") return this.discard();
    if (intent.type === "open") return this.#open();
    if (intent.type === "choose") return this.choose(intent.letter);
    if (!isOpen(core.state)) return undefined;
    if (intent.type === "amount") return this.#amount(core.state.selection.amount + intent.by);
    const next = this.#keyed(intent, core.state.selection);
    core.dispatch({ type: "adjust", selection: next });
    core.view.revealTime(intent.type === "start" ? next.start : next.end);
    return undefined;
  }

  #keyed(intent, selection) {
    const { times, view } = this.#core;
    const to = (time) => view.snap(time + intent.by * (intent.day ? DAY : times.step)) - time;
    const part = selection.purpose === "change" && intent.type === "move" ? selection.part : intent.type;
    const steps = {
      move: () => moved(selection, to(selection.start), times),
      start: () => startMoved(selection, to(selection.start), times),
      end: () => endMoved(selection, to(selection.end), times),
      rows: () => this.#rowKey(selection, intent.by),
      "from-now": () => fromNow(selection, times),
      "to-next": () => withWindow(selection, selection.start, this.#nextBooking(selection), times) ?? selection,
    };
    const next = steps[part]();
    return { ...next, tapped: false, part: spread(next, part) };
  }

  #rowKey(selection, by) {
    if (selection.place !== "rows" || selection.purpose === "change") return selection;
    const next = this.#rowFocus + by;
    if (!this.#core.view.data.row(next)) return selection;
    this.#rowFocus = next;
    this.#core.view.revealRow(this.#core.view.data.row(next).id);
    return withRows(selection, this.#rowsBetween());
  }

  #nextBooking(selection) {
    const { view } = this.#core;
    const last = Math.max(view.to, selection.end);
    if (selection.place === "rows") return Math.min(...selection.rows.map(({ index }) =>
      laterEnd(view.gap(index, selection.start).end, selection, last)));
    const short = view.bandSteps().find(({ start, free }) => start > selection.start && free < selection.amount);
    return short ? short.start : last;
  }

  #open() {
    const core = this.#core;
    core.checkNow();
    core.card.focus();
  }

  #browsingKey(intent, focus) {
    const core = this.#core;
    if (intent.type === "leave") return core.bar.focus();
    if (!focus || !["band", "row"].includes(focus.area)) return false;
    const lease = focus.interval?.lease;
    if (intent.type === "begin") return this.#keyBegin(intent, focus);
    if (!lease || lease.mine === false) return false;
    if (intent.type === "change") return this.#keyChange(focus, intent.part);
    return intent.type === "remove" ? this.remove(lease) : false;
  }

  #keyBegin(intent, focus) {
    const core = this.#core;
    const hit = { ...focus, heading: false };
    if (!this.#mayBegin(hit)) return;
    const { times, view } = core;
    const time = Math.max(view.snap(focus.time ?? times.now), minute(times.now));
    const from = intent.by < 0 ? time - times.step : time;
    core.touch = false;
    core.dispatch({ type: "select", selection: this.#fresh(hit, from) });
  }

  #keyChange(focus, part) {
    const started = hasStarted(leaseOf(focus.interval.lease), this.#core.times.now);
    this.#beginChange(focus, part === "move" && started ? "end" : part);
  }

  /** End or delete a lease, after a question. */
  async remove(lease) {
    const core = this.#core;
    const started = leaseOf(lease).start <= core.times.now;
    const text = [started ? "The lease ends now and is deleted. Servers on its hosts are deleted, too: "
      : "The lease is deleted: ", name(lease.name), "."];
    const yes = await confirm({ title: started ? "End and delete this lease?" : "Delete this lease?", text,
      action: started ? "End and delete" : "Delete", danger: true });
    if (yes) {
      const { verdict } = await core.service.remove(lease.id);
      announce(verdict ? verdict.detail : `Deleted: ${lease.name}`);
      core.view.refresh();
    }
    core.view.element.focus();
  }

  cardEvents() {
    const core = this.#core;
    return {
      submit: () => core.submit(),
      discard: () => this.discard(),
      options: () => core.openForm(), wait: () => core.openForm(true),
      choose: (letter) => this.choose(letter),
      focus: (letter) => core.dispatch({ type: "focus", letter }),
      watch: (on) => this.#watch(on),
      retry: () => core.retry(),
      times: (start, end) => this.#setTimes(start, end),
      amount: (number) => this.#amount(number),
    };
  }

  #watch(on) {
    this.#core.dispatch({ type: "watch", on });
    announce(on ? "You will be told here when it fits, while this page is open." : "Not watching any more.");
  }

  #setTimes(start, end) {
    const core = this.#core;
    if (!isOpen(core.state)) return "";
    const { selection } = core.state;
    const next = withWindow(selection, start, end, core.times);
    if (!next) return end <= start ? "The end must be after the start." : "The end must be after now.";
    const both = next.purpose === "change" && next.start !== next.lease.start ? "move" : next.part;
    core.dispatch({ type: "adjust", selection: { ...next, part: both, tapped: false } });
    core.view.revealTime(next.start, next.end);
    return "";
  }

  #amount(number) {
    const core = this.#core;
    if (!isOpen(core.state) || core.state.selection.place === "rows") return;
    const next = withAmount(core.state.selection, number);
    core.view.setState({ amount: next.amount });
    core.dispatch({ type: "adjust", selection: next });
  }

  alternative(selection, alternative) {
    const next = ofAlternative(selection, alternative, this.#core.times);
    return next.purpose === "change" ? { ...next, part: next.start === next.lease.start ? "end" : "move" } : next;
  }

  choose(letter) {
    const core = this.#core;
    const { selection, verdict, windows } = core.state;
    if (core.state.phase !== "resting") return;
    const offered = verdict?.kind === "refused" ? verdict.alternatives : windows;
    const each = offered.find((item) => item.letter === letter);
    if (!each) return;
    const inCard = core.card.hasFocus;
    const next = each.differs ? this.alternative(selection, each)
      : withWindow(selection, each.start, each.end, core.times);
    core.dispatch({ type: "select", selection: next, windows: each.differs ? [] : windows });
    core.view.revealTime(next.start, next.end);
    core.checkNow();
    if (inCard) core.card.focus();
  }

  discard() {
    const core = this.#core;
    const inCard = core.card.hasFocus;
    core.dispatch({ type: "discard" });
    if (!core.state.selection && inCard) core.view.element.focus({ preventScroll: true });
  }

  barEvents() {
    return { change: (part) => this.#barChanged(part), find: (days) => this.#find(days),
      form: () => this.#emptyForm() };
  }

  #barChanged(part) {
    const core = this.#core;
    core.view.setState(part);
    const { selection } = core.state;
    if (!isOpen(core.state) || selection.purpose !== "new" || selection.place !== "band") return;
    const next = { ...selection, ...("properties" in part ? { properties: part.properties } : {}) };
    core.dispatch({ type: "adjust", selection: "amount" in part ? withAmount(next, part.amount) : next });
  }

  #find(days) {
    const core = this.#core;
    const select = (length) => this.#fresh({ area: "band" }, core.times.now, length);
    return findSoonest(core, days, select, () => this.#emptyForm());
  }

  #emptyForm() {
    const { context, type } = this.#core;
    context.navigate(`/console/new?type=${encodeURIComponent(type)}`);
  }
}
