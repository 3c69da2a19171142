// A field for a moment: a time of the chosen zone with UTC below it. It explains hours that the
// clocks skip, and offers both moments of an hour that they repeat.

import { h, uid } from "./dom.js";
import { field } from "./forms.js";
import { clock, offset, offsetName, toInput, utc, wallMoments, zoneName } from "./time.js";

/**
 * @param {string} label
 * @param {{date?: Date|null, required?: boolean, name?: string, hint?: string, changed?: function(): void}} [options]
 * @returns {{element: HTMLElement, input: HTMLInputElement, read: function(): ?Date, set: function(?Date)}}
 */
export function momentField(label, { date = null, required = false, name, hint, changed } = {}) {
  const note = h("p", { class: "hint", id: uid("utc") });
  const which = h("select", { "aria-label": `${label}: which of the two`, hidden: true });
  const input = h("input", { type: "datetime-local", name, required, "aria-describedby": note.id });
  const element = field(`${label} (${zoneName()} time)`, input, hint);
  input.setAttribute("aria-describedby", [note.id, hint && `${input.id}-hint`].filter(Boolean).join(" "));
  input.after(note, which);
  const explain = () => explained(input, note, which);
  input.addEventListener("input", () => { explain(); changed?.(); });
  which.addEventListener("change", () => { explain(); changed?.(); });
  const set = (value) => {
    input.value = value ? toInput(value) : "";
    explain(value);
  };
  set(date);
  return { element, input, set, read: () => chosen(input, which) };
}

function chosen(input, which) {
  const { dates } = wallMoments(input.value);
  return dates[which.value === "1" && dates.length > 1 ? 1 : 0] || null;
}

function explained(input, note, which, date = null) {
  const { dates, skippedTo } = wallMoments(input.value);
  if (dates.length > 1) offer(which, dates, date);
  which.hidden = dates.length < 2;
  const read = chosen(input, which);
  const problem = skippedTo ? skipped(skippedTo) : "";
  input.setCustomValidity(problem);
  note.textContent = problem || (read ? utc(read) : "");
  note.classList.toggle("bad-text", Boolean(problem));
}

function offer(which, dates, date) {
  const second = date ? date.getTime() === dates[1].getTime() : which.value === "1";
  const words = ["the first time", "the second time"];
  which.replaceChildren(...dates.map((item, index) =>
    h("option", { value: String(index) }, `${clock(item)} ${words[index]}, ${offsetName(item)}`)));
  which.value = second ? "1" : "0";
}

function skipped(to) {
  const from = clock(new Date(to.getTime() + offset(new Date(to.getTime() - 60_000))), "UTC"); // by the old offset
  return `This time does not exist: the clocks go from ${from} to ${clock(to)}.`;
}
