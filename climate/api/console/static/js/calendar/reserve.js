// Reserving in the calendar: the bar, the selection, its card, and the requests behind them.

import { Reserve } from "../reserve/controller.js";

/**
 * Let people reserve in `view`.
 * @param {import("./view.js").CalendarView} view
 * @param {{bar: HTMLElement, layer: HTMLElement, context: {me: object, navigate: function(string): void}}} places
 * @returns {function(): void} detach
 */
export function attachReserve(view, { bar, layer, context }) {
  const reserve = new Reserve(view, { bar, layer, context });
  return () => reserve.detach();
}
