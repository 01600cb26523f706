// A run that the page around this frame posts, as a whole each time: a message that is lost or late does no harm.

/** @import { Action, Source } from "./source.js" */
/** @import { RunDocument } from "./types.js" */

/** @implements {Source} */
export class PostedSource {
  live = true;
  /** @type {Action[]} */
  actions = [];
  forks = null;
  code = null;
  talk = null;
  notes = { list: async () => this.document.notes ?? [] };

  /** @param {RunDocument} run */
  constructor(run) {
    this.document = run;
    /** @type {RunDocument | null} */
    this.shown = null;
    /** @type {((head: number) => void) | null} */
    this.callback = null;
    window.addEventListener("message", (event) => { if (event.source === window.parent) this.take(event.data); });
  }

  /** Take what was posted, unless it is older. @param {unknown} text */
  take(text) {
    if (typeof text !== "string") return;
    /** @type {RunDocument} */
    const run = JSON.parse(text);
    if (run.run !== this.document.run || run.head < this.document.head) return;
    this.document = run;
    this.callback?.(run.head);
  }

  async run() {
    this.shown = this.document;
    return this.document;
  }

  /** @returns {Promise<any>} */
  async change() { return this.document === this.shown ? null : { whole: await this.run() }; }

  /** @param {number} after */
  async records(after) {
    const { records, types, start } = this.document;
    return records.map(([at, type], place) => ({ seq: place + 1, ts: start + at / 1000, type: types[type] })).slice(after);
  }

  /** @param {(head: number) => void} callback */
  subscribe(callback) {
    this.callback = callback;
    if (this.document !== this.shown) callback(this.document.head);
    return () => { this.callback = null; };
  }
}
