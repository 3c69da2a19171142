// Refreshes that keep the focus, and run only while the page is seen.

import { onChange } from "../live.js";

const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";

/**
 * Call `refresh` after each change of the calendar, and every `seconds` while the page is visible.
 * Calls never overlap: a call that becomes due meanwhile runs afterwards.
 * @returns {function(): void} ends this
 */
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
 * Run `change`, which may replace what is inside `element`, and give the focus back to the same
 * place: the element with the same `data-focus` in the row with the same `data-key`.
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
