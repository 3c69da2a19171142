// Dry runs of selections: one at a time, after the selection has come to rest.

const REST = 120; // ms without a change
const RETRY = 4000; // ms after the service did not answer

/** Checks the latest selection. The request before is aborted. */
export class Checker {
  #run;
  #done;
  #timer = 0;
  #under = null;

  /**
   * @param {function(object, AbortSignal): Promise<object>} run resolves to the verdict of a selection
   * @param {function(object, object): void} done is called with the selection and its verdict
   */
  constructor(run, done) {
    this.#run = run;
    this.#done = done;
  }

  /** Check `selection` when nothing has changed for a moment; at once with `now`. */
  request(selection, { now = false } = {}) {
    this.cancel();
    this.#timer = setTimeout(() => this.#check(selection), now ? 0 : REST);
  }

  /** Forget what is under way. */
  cancel() {
    clearTimeout(this.#timer);
    this.#under?.abort();
    this.#under = null;
  }

  async #check(selection) {
    const controller = new AbortController();
    this.#under = controller;
    let verdict;
    try {
      verdict = await this.#run(selection, controller.signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      throw error;
    }
    if (controller.signal.aborted) return;
    this.#under = null;
    this.#done(selection, verdict);
    if (verdict.kind === "down") this.#timer = setTimeout(() => this.#check(selection), RETRY);
  }
}
