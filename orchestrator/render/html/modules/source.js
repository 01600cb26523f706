// Where a page gets its run from. A mailed page has its run in itself; a live page asks a server.

/** @import { Point } from "./go_on.js" */
/** @import { Entry, NodeSource, NoteSource, RunChange, RunDocument, Step } from "./types.js" */

/**
 * One thing that a reader can do to a run, as a button. A frozen page has none.
 * @typedef {object} Action
 * @property {string} name  The text of the button.
 * @property {string} [title]
 * @property {(run: RunDocument) => boolean} offered  Whether it can be done to the run as it is now.
 * @property {() => Promise<void>} act  Rejects with an error whose message a reader understands.
 */

/**
 * Forms that make forks of a run.
 * @typedef {object} Forks
 * @property {(point: Point, how: { close: () => void, fault: (text: string) => void }) => HTMLElement} form
 *   The form of a fork at a record: the same element each time, so that what was written stays. `fault` says what is wrong
 *   with the record.
 */

/**
 * Where the records and the data of one run come from.
 * @typedef {object} Source
 * @property {() => Promise<RunDocument>} run  The run, as it is when the page is opened.
 * @property {() => Promise<RunChange | null>} change  What became of it since the source was last asked; null: nothing.
 * @property {(after: number) => Promise<{ seq: number, ts: number, type: string }[]>} records
 *   The records behind a number, in order; `ts` in Unix seconds.
 * @property {(callback: (head: number) => void) => (() => void)} subscribe
 *   Calls back when the run has more records, with the number of the last one. Returns what ends that.
 * @property {boolean} live  Whether the run can still change.
 * @property {Action[]} actions
 * @property {Forks | null} forks  null: a fork cannot be made from here.
 * @property {((step: Step) => Promise<NodeSource>) | null} code  The source of the function behind a step; null: it is not shown.
 * @property {((before: number) => Promise<{ count: number, entries: Entry[] }>) | null} talk  The entries of the transcript
 *   before a number, 0: the newest, also of records that the page has not got yet; null: it has all.
 * @property {NoteSource | null} notes  null: the page shows none.
 */

/**
 * A run that does not change.
 * @implements {Source}
 */
export class FrozenSource {
  live = false;
  /** @type {Action[]} */
  actions = [];
  forks = null;
  code = null;
  talk = null;

  /** @param {RunDocument} run */
  constructor(run) {
    this.document = run;
    /** @type {NoteSource} */
    this.notes = { list: async () => run.notes ?? [] };
  }

  async run() { return this.document; }

  async change() { return null; }

  /** @param {number} after */
  async records(after) {
    const { records, types, start } = this.document;
    return records.map(([at, type], place) => ({ seq: place + 1, ts: start + at / 1000, type: types[type] })).slice(after);
  }

  subscribe() { return () => undefined; }
}
