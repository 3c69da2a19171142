// Zooming by pinch and by the wheel with Ctrl.

/** Let two fingers and Ctrl+wheel zoom a view; returns how to end this. */
export function attachTouch(view) {
  const { element } = view;
  const ends = new AbortController();
  const listen = { passive: false, signal: ends.signal };
  let pinch = null;
  const begin = (event) => {
    pinch = event.touches.length === 2 ? { ...fingers(event), scale: view.scale } : null;
    if (pinch) event.preventDefault();
  };
  const move = (event) => {
    if (!pinch || event.touches.length !== 2) return;
    event.preventDefault();
    const { distance, middle } = fingers(event);
    view.setScale((pinch.scale * distance) / pinch.distance, middle);
  };
  element.addEventListener("touchstart", begin, listen);
  element.addEventListener("touchmove", move, listen);
  const end = () => { pinch = null; };
  for (const name of ["touchend", "touchcancel"]) element.addEventListener(name, end, { signal: ends.signal });
  element.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const step = event.deltaMode === 1 ? event.deltaY * 20 : event.deltaY;
    view.setScale(view.scale * Math.exp(-step / 400), event.clientX);
  }, listen);
  return () => ends.abort();
}

function fingers({ touches: [one, other] }) {
  return { distance: Math.max(20, Math.abs(one.clientX - other.clientX)), middle: (one.clientX + other.clientX) / 2 };
}
