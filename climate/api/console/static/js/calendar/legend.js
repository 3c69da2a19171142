// Below the calendar: what the shapes mean, whether the page is live, and the keys.

import { button, dialog, h, s } from "../dom.js";
import { liveState } from "../live.js";
import { clockSeconds } from "../time.js";

const SHAPES = [
  ["own", "Yours, running"], ["later", "Yours, later"], ["taken", "Taken"], ["cleaning", "Cleaning"],
  ["preparing", "Getting ready"], ["closed", "Not bookable"], ["held", "Held"],
];

/** The legend, and a function that ends it. */
export function legend() {
  const live = h("span", { class: "calendar-live" });
  const show = () => showLive(live);
  document.addEventListener("live", show);
  show();
  const keys = button([h("kbd", {}, "?"), "keys"], showKeys, { kind: "quiet calendar-keys" });
  const element = h("div", { class: "calendar-legend" },
    h("ul", { "aria-label": "Legend" }, SHAPES.map(([shape, words]) => h("li", {}, swatch(shape), words))),
    h("div", { class: "calendar-status" }, live, keys));
  return [element, () => document.removeEventListener("live", show)];
}

function swatch(shape) {
  return h("span", { class: `swatch swatch-${shape}`, "aria-hidden": "true" });
}

function showLive(element) {
  const { ok, at } = liveState();
  const words = at ? clockSeconds(at) : "";
  const circle = s("circle", { cx: 5, cy: 5, r: 3.5 });
  const dot = s("svg", { viewBox: "0 0 10 10", class: ok ? "dot" : "dot stale", "aria-hidden": "true" }, circle);
  element.replaceChildren(dot, ok ? `Live, ${words}` : at ? `Not live, last at ${words}` : "Not live");
}

const KEYS = [
  ["Left, Right", "previous, next interval; free ones too"],
  ["Up, Down", "previous, next row; the topmost is the free capacity"],
  ["Page Up, Page Down", "a screen of rows"],
  ["Home, End", "first, last interval in sight"],
  ["Ctrl+Home, Ctrl+End", "first, last row"],
  ["Enter, Space", "free: select the duration you need; yours: open; taken: what is known; group: fold"],
  ["Shift+Left, Shift+Right", "begin a selection and move its end"],
  ["Alt+Shift+Left, Alt+Shift+Right", "move the start of the selection"],
  ["With a selection: Left, Right", "move it; with Ctrl by a day"],
  ["With a selection: + and \u2212", "one more, one fewer"],
  ["With a selection: Enter", "check it and open the card"],
  ["A, B, C", "take that alternative"],
  ["M, E", "yours: move, change the end"],
  ["Delete", "yours: end or delete; selection: discard"],
  ["Esc", "discard the selection; leave the calendar"],
  ["+ and \u2212", "zoom"],
  ["T, G, F, N", "today; go to a date; filter; new lease as a form"],
  ["?", "these keys"],
];

/** Show the keys in a dialog. */
export function showKeys() {
  dialog({
    title: "Keys of the calendar", wide: true,
    content: [h("p", { class: "quiet" }, "They work while the calendar has the focus."),
      h("dl", { class: "pairs calendar-keylist" }, KEYS.map(([key, what]) => [h("dt", {}, key), h("dd", {}, what)]))],
    actions: [button("Close", (event) => event.target.closest("dialog").close(), { kind: "primary" })],
  });
}
