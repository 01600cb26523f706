// From a moment of a run to a place on a bar. Times in which nothing worked can be left out, and a part can be looked at.
// That of a fork begins where the fork did: what it took over from its parent stands at the beginning.

/** @import { RunData } from "./run_data.js" */
/** @typedef {{ from: number, to: number }} Part  Of the length of the axis, from 0 to 1. */

/** @type {Part} */
export const WHOLE = { from: 0, to: 1 };
const LEAST = 1e-4;

export class TimeAxis {
  /**
   * @param {RunData} data
   * @param {boolean} squeezed  Whether each idle time has the width of a fortieth of the work only.
   * @param {Part} part
   */
  constructor(data, squeezed, part = WHOLE) {
    this.span = data.span;
    this.start = Math.min(data.run.forked ?? 0, this.span);
    this.part = part;
    /** Idle times that are left out, and the width that they keep. @type {[number, number, number][]} */
    this.cuts = [];
    if (squeezed) {
      const idle = data.run.idle.map(([from, to]) => [Math.max(from, this.start), to]).filter(([from, to]) => to > from);
      const total = idle.reduce((sum, [from, to]) => sum + to - from, 0);
      const width = Math.max(1, (this.span - this.start - total) / 40);
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
    return Math.max(0, time - this.start - less);
  }

  /** @param {number} time */
  percent(time) {
    const { from, to } = this.part;
    return (100 * (this.place(time) / this.length - from)) / (to - from);
  }

  /** The time at a place on the bar. @param {number} percent */
  time(percent) {
    const { from, to } = this.part, place = this.length * (from + (percent / 100) * (to - from));
    let more = 0;
    for (const [begin, end, width] of this.cuts) {
      const at = begin - this.start - more;
      if (place <= at) break;
      if (place < at + width) return begin + ((place - at) * (end - begin)) / width;
      more += end - begin - width;
    }
    return Math.max(this.start, Math.min(this.span, this.start + place + more));
  }
}

/**
 * A part of an axis, made smaller or larger around a place in it.
 * @param {Part} part
 * @param {number} factor  Above 1: less of the axis, and that larger.
 * @param {number} at  From 0 to 1, of the part.
 * @returns {Part}
 */
export function zoomed({ from, to }, factor, at) {
  const width = Math.max(LEAST, Math.min(1, (to - from) / factor));
  return shifted({ from: 0, to: width }, from + (to - from) * at - width * at);
}

/**
 * A part of an axis, moved as far as there is axis.
 * @param {Part} part
 * @param {number} by  Of the length of the axis.
 * @returns {Part}
 */
export function shifted({ from, to }, by) {
  const width = to - from, begin = Math.max(0, Math.min(1 - width, from + by));
  return { from: begin, to: begin + width };
}
