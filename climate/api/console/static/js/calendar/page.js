// The calendar page: toolbar, calendar, legend.

import { h } from "../dom.js";
import { attachReserve } from "./reserve.js";
import { CalendarView } from "./view.js";

/** Show the calendar. */
export async function mount(element, context) {
  context.title("Calendar");
  const view = new CalendarView({});
  const bar = h("div", { class: "calendar-need" });
  const layer = h("div", { class: "calendar-layer" });
  element.classList.add("calendar");
  element.view = view;
  element.append(h("div", { class: "calendar-bar" }, bar), h("div", { class: "calendar-box" }, view.element, layer));
  view.start();
  const detach = attachReserve(view, { bar, layer, context });
  return () => {
    detach();
    view.destroy();
  };
}
