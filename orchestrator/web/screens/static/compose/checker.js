// @ts-check
// Problems as soon as a text has changed, the drawing when it has rested: one request of each kind at a time, the newest
// text always gets its turn, and what is known of an older text never replaces what is known of a newer one.

import { call } from "../api.js";

/** @typedef {{code: string, message: string, line: number, column?: number | null, nodes: string[], edges: string[]}} Fault */
/** @typedef {{name: string, kind: string, first: number, last: number, outcomes: string[] | null}} CheckedNode  Lines from 1. */
/**
 * What the server said of a text.
 * @typedef {object} Checked
 * @property {string | null} graph
 * @property {boolean} ok
 * @property {Fault[]} problems
 * @property {string[]} notes
 * @property {string[]} skipped
 * @property {string | null} drawing
 * @property {CheckedNode[]} [nodes]
 * @property {number} [more_problems]
 * @property {{name: string, type: string}[]} [fields]
 * @property {any[]} [proofs]
 * @property {Record<string, any> | null} [form]
 */

const SOON = 20; // milliseconds: several changes of one moment are one
const REST = 200; // milliseconds without a change before the text is drawn
const EACH = 12; // more milliseconds for each node above this number of them
const FEW = 30;
const AGAIN = 2000; // milliseconds before a server that did not answer is asked again

export class Checker {
  /**
   * @param {() => string} text
   * @param {{checked: (found: Checked) => void, drawn: (svg: string, found: Checked) => void, failed: (error: unknown) => void}} how
   */
  constructor(text, how) {
    this.text = text;
    this.how = how;
    this.turn = 0; // counts changes
    this.known = -1; // the change that the answer was about
    this.asking = false;
    this.drawing = false;
    this.timer = 0;
    this.rest = 0;
    this.nodes = 0;
    this.took = 0; // milliseconds of the last drawing
    this.sent = 0; // requests, for tests
  }

  /** The text is another one. */
  changed() {
    this.turn++;
    clearTimeout(this.rest);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { void this.check(); }, SOON);
  }

  async check() {
    if (this.asking) return; // the newest text gets its turn when the answer is there
    this.asking = true;
    const { turn } = this, text = this.text();
    try {
      this.sent++;
      /** @type {Checked} */
      const found = await call("/graphs/check", { method: "POST", body: { text, format: "yaml" } });
      if (turn === this.turn) {
        this.known = turn;
        this.nodes = found.nodes?.length ?? 0;
        this.how.checked(found);
        if (found.ok) this.draws();
      }
    } catch (error) {
      if (turn === this.turn) {
        this.how.failed(error);
        this.timer = setTimeout(() => { void this.check(); }, AGAIN);
        this.known = turn;
      }
    } finally {
      this.asking = false;
      if (turn !== this.turn) void this.check();
    }
  }

  /** Milliseconds for which a text has to rest before it is drawn. */
  get pause() { return Math.max(REST + EACH * Math.max(0, this.nodes - FEW), Math.min(2000, 1.5 * this.took)); }

  draws() {
    clearTimeout(this.rest);
    this.rest = setTimeout(() => { void this.draw(); }, this.pause);
  }

  async draw() {
    if (this.drawing) return this.draws();
    this.drawing = true;
    const { turn } = this, text = this.text(), began = performance.now();
    try {
      this.sent++;
      /** @type {Checked} */
      const found = await call("/graphs/check", { method: "POST", body: { text, format: "yaml", draw: true, prove: true } });
      this.took = performance.now() - began;
      if (turn === this.turn && found.drawing) this.how.drawn(found.drawing, found);
    } catch (error) {
      if (turn === this.turn) this.how.failed(error);
    } finally {
      this.drawing = false;
    }
  }
}
