// @ts-check
// A run that a server has, and that goes on: what changed is asked for whenever its stream of events tells of a record.

import { call, root } from "./api.js";

/** @import { Action, Source } from "./modules/source.js" */
/** @import { RunChange, RunDocument } from "./modules/types.js" */
/** @typedef {{type: string, seq: number | null} & Record<string, any>} RunEvent */

const PATIENCE = 2000; // milliseconds before a stream that was refused is asked for again
const SHARE = 3; // what takes a second to get is asked for every four seconds at most

/** Whether a step waits for an answer. @param {RunDocument} run */
const asks = (run) => run.steps.some((step) => step.status === "waiting" && (step.asked ?? []).some((asked) => !asked.answer));

/** @implements {Source} */
export class LiveSource {
  live = true;

  /**
   * @param {string} runId
   * @param {RunDocument} first  The run as it came with the page.
   * @param {{event: (event: RunEvent) => void, connected: (there: boolean) => void, readOnly: boolean}} how
   */
  constructor(runId, first, { event, connected, readOnly }) {
    this.path = `/runs/${encodeURIComponent(runId)}`;
    this.event = event;
    this.connected = connected;
    this.first = first;
    this.version = first.version ?? "";
    this.head = first.head;
    this.lost = false;
    this.took = 0;
    this.asked = 0;
    /** @type {((head: number) => void) | null} */
    this.callback = null;
    /** @type {EventSource | null} */
    this.stream = null;
    /** @type {Action[]} */
    this.actions = readOnly ? [] : this.allActions();
  }

  async run() { return this.first; }

  async change() {
    const rest = this.asked + SHARE * this.took - performance.now();
    if (rest > 0) await new Promise((done) => setTimeout(done, rest));
    const began = performance.now();
    const answer = await fetch(`${root}${this.path}/data?after=${this.version}`, { cache: "no-store" });
    if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
    /** @type {RunChange & { version: string }} */
    const change = await answer.json();
    this.asked = performance.now();
    this.took = this.asked - began;
    this.version = change.whole?.version ?? change.version;
    this.head = Math.max(this.head, (change.whole ?? change.head).head ?? 0);
    return change;
  }

  /** @param {number} after */
  async records(after) {
    const found = await call(`${this.path}/records?after=${after}`);
    return found.records;
  }

  /** @param {(head: number) => void} callback */
  subscribe(callback) {
    this.callback = callback;
    this.listen();
    return () => { this.stream?.close(); this.callback = null; };
  }

  /** Read the events behind the last record that is known. A browser connects again by itself, unless it is refused. */
  listen() {
    this.stream?.close();
    const stream = new EventSource(`${root}/api${this.path}/events?after=${this.head}`);
    this.stream = stream;
    stream.onopen = () => {
      this.connected(true);
      if (this.lost) this.callback?.(this.head); // what became of the run meanwhile may be in no record
      this.lost = false;
    };
    stream.onmessage = (message) => {
      /** @type {RunEvent} */
      const event = JSON.parse(message.data);
      this.event(event);
      if (event.seq === null) return;
      this.head = Math.max(this.head, event.seq);
      this.callback?.(event.seq);
      if (event.type === "ended") stream.close();
    };
    stream.onerror = () => {
      this.connected(false);
      this.lost = true;
      if (stream.readyState === EventSource.CLOSED && this.callback) setTimeout(() => { if (this.stream === stream) this.listen(); }, PATIENCE);
    };
  }

  /** @returns {Action[]} */
  allActions() {
    /** @param {string} what @param {unknown} body */
    const tell = (what, body = {}) => async () => {
      await call(`${this.path}/${what}`, { method: "POST", body });
      this.listen();
      this.callback?.(this.head);
    };
    /** @param {...string} statuses */
    const when = (...statuses) => (/** @type {RunDocument} */ run) => statuses.includes(run.status);
    return [
      { name: "Pause", title: "Stop after the steps that run", offered: when("running"), act: tell("pause") },
      { name: "Resume", title: "Go on", offered: (run) => run.status === "interrupted" || (run.status === "paused" && !asks(run)), act: tell("resume") },
      { name: "Retry", title: "Go on from what failed", offered: when("failed", "exhausted", "cancelled"), act: tell("resume", { retry: true }) },
      { name: "Cancel", title: "End the run", offered: when("running", "paused", "interrupted"), act: tell("cancel") },
    ];
  }
}
