// How fast frames come while the calendar moves.

const LATE = 25; // ms: a frame that took longer came late
const SAMPLE = 20; // frames
const MANY = 4; // late frames of a sample

/** Whether a canvas at full resolution is too slow to move; without a GPU, one at device scale 2 is. */
export class Pace {
  constructor() {
    this.slow = false;
    this.last = 0;
    this.all = 0;
    this.late = 0;
  }

  /** Count a frame at `time` (ms) of `requestAnimationFrame`. */
  frame(time, moving) {
    if (moving && this.last) this.#count(time - this.last);
    this.last = moving ? time : 0;
  }

  /** Whether the view moved more than a screen since the last call; `y` and `x` are its place in screens. */
  fliesPast(y, x) {
    const [beforeY, beforeX] = this.place ?? [y, x];
    this.place = [y, x];
    return Math.abs(y - beforeY) + Math.abs(x - beforeX) > 1;
  }

  #count(milliseconds) {
    this.all += 1;
    if (milliseconds > LATE) this.late += 1;
    if (this.all < SAMPLE) return;
    this.slow ||= this.late > MANY;
    this.all = 0;
    this.late = 0;
  }
}
