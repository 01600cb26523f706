// From a moment of a run to a place on a bar. Times in which nothing worked can be left out.

/** @import { RunData } from "./run_data.js" */

export class TimeAxis {
  /**
   * @param {RunData} data
   * @param {boolean} squeezed  Whether each idle time has the width of a fortieth of the work only.
   */
  constructor(data, squeezed) {
    this.span = data.span;
    /** Idle times that are left out, and the width that they keep. @type {[number, number, number][]} */
    this.cuts = [];
    if (squeezed) {
      const idle = data.run.idle.filter(([from, to]) => to > from);
      const total = idle.reduce((sum, [from, to]) => sum + to - from, 0);
      const width = Math.max(1, (this.span - total) / 40);
      for (const [from, to] of idle) if (to - from > Math.max(width, 30)) this.cuts.push([from, to, width]);
    }
    this.length = Math.max(1, this.place(this.span));
  }

  /** @param {number} time */
  place(time) {
    let less = 0;
    for (const [from, to, width] of this.cuts) {
      if (time <= from) break;
      less += time >= to ? to - from - width : (time - from) * (1 - width / (to - from));
    }
    return time - less;
  }

  /** @param {number} time */
  percent(time) { return (100 * this.place(time)) / this.length; }
}
