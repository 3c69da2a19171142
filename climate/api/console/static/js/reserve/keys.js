// The keys of the calendar that select, move, stretch and send. Maps a key to an intent; carries out nothing.

/**
 * What a key means while there is a selection; null: nothing, the view may have the key.
 * @param {KeyboardEvent} event
 * @param {import("./machine.js").State} state
 * @returns {{type: string, [key: string]: *}|null}
 */
export function selectedIntent(event, state) {
  const { key, shiftKey: shift, altKey: alt, ctrlKey: ctrl, metaKey: meta } = event;
  if (meta) return null;
  if (key === "ArrowLeft" || key === "ArrowRight") return arrow(key === "ArrowLeft" ? -1 : 1, { shift, alt, ctrl });
  if (ctrl || alt) return null;
  const simple = SELECTED[key];
  if (simple) return simple;
  const letter = key.toUpperCase();
  return letter.length === 1 && offered(state, letter) ? { type: "choose", letter } : null;
}

/** What a key means without a selection; null: the view may have the key. */
export function browsingIntent(event) {
  const { key, shiftKey: shift, altKey: alt, ctrlKey: ctrl, metaKey: meta } = event;
  if (shift && !alt && !ctrl && !meta && (key === "ArrowLeft" || key === "ArrowRight")) return { type: "begin", by: key === "ArrowLeft" ? -1 : 1 };
  if (alt || ctrl || meta) return null;
  return BROWSING[key] ?? null;
}

const SELECTED = {
  ArrowUp: { type: "rows", by: -1 },
  ArrowDown: { type: "rows", by: 1 },
  Home: { type: "from-now" },
  End: { type: "to-next" },
  Enter: { type: "open" },
  " ": { type: "open" },
  "+": { type: "amount", by: 1 },
  "=": { type: "amount", by: 1 },
  "-": { type: "amount", by: -1 },
  Delete: { type: "discard" },
  Escape: { type: "discard" },
};

const BROWSING = {
  Enter: { type: "activate" },
  " ": { type: "activate" },
  m: { type: "change", part: "move" },
  M: { type: "change", part: "move" },
  e: { type: "change", part: "end" },
  E: { type: "change", part: "end" },
  Delete: { type: "remove" },
  Escape: { type: "leave" },
  n: { type: "form" },
  N: { type: "form" },
};

function arrow(by, { shift, alt, ctrl }) {
  if (shift && alt) return { type: "start", by, day: ctrl };
  if (shift) return { type: "end", by, day: ctrl };
  return alt ? null : { type: "move", by, day: ctrl };
}

function offered({ phase, verdict, windows }, letter) {
  if (phase !== "resting") return false;
  const alternatives = verdict?.kind === "refused" ? verdict.alternatives : windows;
  return alternatives.some((each) => each.letter === letter);
}
