// Reserving in the calendar: the bar, the selection, its card, and the requests behind them.

/**
 * Let people reserve in `view`.
 * @param {import("./view.js").CalendarView} view
 * @param {{bar: HTMLElement, layer: HTMLElement, context: *}} places
 * @returns {function(): void} detach
 */
export function attachReserve(view, { bar, layer, context }) {
  void [view, bar, layer, context];
  return () => {};
}
