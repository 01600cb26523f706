// @ts-check
// A run that a server has, and that goes on: it asks for changes whenever its stream of events has a record.
// Of a long run a page gets the first part at first; then it asks for one part after the other.

import { call, root } from "./api.js";
import { ForkForms } from "./fork_form.js";

/** @import { Action, Source } from "./modules/source.js" */
/** @import { Entry, NoteSource, RunChange, RunDocument } from "./modules/types.js" */
/** @typedef {{type: string, seq: number | null} & Record<string, any>} RunEvent */

const PATIENCE = 2000; // milliseconds before a stream that was refused is asked for again
const REST = 5000; // milliseconds between two looks at a run that has ended: another page may retry it
const ENDED = ["completed", "failed", "cancelled", "exhausted"];
const SHARE = 3; // what takes a second to get is asked for every four seconds at most
const PARTS = 1; // and the next part of a long run every two: the server has other work, too

/** Whether a step waits for an answer. @param {RunDocument} run */
const asks = (run) => run.steps.some((step) => step.status === "waiting" && (step.asked ?? []).some((asked) => !asked.answer));

/** @implements {Source} */
export class LiveSource {
  live = true;

  /**
   * @param {string} runId
   * @param {RunDocument} first  The run as it came with the page.
   * @param {{event: (event: RunEvent) => void, opened: () => void, deleted: (text: string) => void, connected: (there: boolean) => void, readOnly: boolean, sources: boolean}} how
   */
  constructor(runId, first, { event, opened, deleted, connected, readOnly, sources }) {
    this.path = `/runs/${encodeURIComponent(runId)}`;
    this.event = event;
    this.opened = opened;
    this.said = deleted;
    this.connected = connected;
    this.first = first;
    this.version = first.version ?? "";
    this.head = first.head;
    this.of = first.of ?? first.head;
    this.status = first.status;
    this.deleted = false;
    this.timer = 0;
    this.lost = false;
    /** The transcript under way: the next part of the run waits for it. @type {Promise<unknown>} */
    this.talking = Promise.resolve();
    this.took = 0;
    this.asked = 0;
    /** @type {((head: number) => void) | null} */
    this.callback = null;
    /** @type {EventSource | null} */
    this.stream = null;
    /** @type {Action[]} */
    this.actions = readOnly ? [] : this.allActions();
    /** @type {ForkForms | null} */
    this.forks = readOnly ? null : new ForkForms(runId);
    /** @type {Source["code"]} */
    this.code = sources ? (step) => call(`${this.path}/source?${new URLSearchParams({ node: step.part.replace(/^node-/, "").replaceAll(".", "/") })}`) : null;
    const notes = `${this.path}/notes`;
    /** @type {NoteSource} */
    this.notes = { list: async () => (await call(notes)).notes };
    if (!readOnly) {
      this.notes.write = (note) => call(notes, { method: "POST", body: note });
      this.notes.remove = (id) => call(`${notes}/${encodeURIComponent(id)}`, { method: "DELETE" });
    }
  }

  async run() { return this.first; }

  /** @param {number} before @returns {Promise<{ count: number, entries: Entry[] }>} */
  async talk(before) {
    const answer = fetch(`${root}${this.path}/data?talk=${before}`, { cache: "no-store" });
    this.talking = answer.catch(() => undefined);
    const found = await answer;
    if (!found.ok) throw new Error(`The server answered ${found.status}.`);
    return found.json();
  }

  async change() {
    await this.talking;
    const rest = this.asked + (this.behind ? PARTS : SHARE) * this.took - performance.now();
    if (rest > 0) await new Promise((done) => setTimeout(done, rest));
    const began = performance.now();
    const answer = await fetch(`${root}${this.path}/data?after=${this.version}`, { cache: "no-store" }).catch(() => null);
    this.connected(answer !== null);
    if (this.behind && !answer?.ok) this.readOn(PATIENCE);
    if (answer === null) throw new Error("");
    if (answer.status === 404) {
      this.end("This run was deleted.");
      throw new Error("This run was deleted. The page shows it as it was.");
    }
    if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
    /** @type {RunChange & { version: string }} */
    const change = await answer.json();
    this.asked = performance.now();
    this.took = this.asked - began;
    this.version = change.whole?.version ?? change.version;
    const { head = 0, of = head, status = this.status } = change.whole ?? change.head;
    this.head = change.whole || of > head ? head : Math.max(this.head, head); // a stream may have had more
    this.of = of;
    this.status = status;
    if (this.behind || (!this.stream && !this.ended)) this.listen();
    return change;
  }

  /** Whether there are records that the page did not get yet. */
  get behind() { return this.of > this.head; }

  /** Ask for the next part. @param {number} wait  Milliseconds. */
  readOn(wait) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { if (!this.deleted && document.visibilityState === "visible") this.callback?.(this.head); }, wait);
  }

  /** @param {number} after */
  async records(after) {
    const found = await call(`${this.path}/records?after=${after}`);
    return found.records;
  }

  /** @param {(head: number) => void} callback */
  subscribe(callback) {
    this.callback = callback;
    const seen = () => { // a browser has six connections to a server, so a page that is not seen gives its own back
      if (document.visibilityState !== "visible") this.close();
      else if (!this.deleted) { this.callback?.(this.head); this.listen(); }
    };
    document.addEventListener("visibilitychange", seen);
    addEventListener("pagehide", () => this.close());
    addEventListener("pageshow", (event) => { if (event.persisted) seen(); });
    if (document.visibilityState === "visible") this.listen();
    return () => {
      document.removeEventListener("visibilitychange", seen);
      this.callback = null;
      this.close();
    };
  }

  get ended() { return ENDED.includes(this.status); }

  close() {
    clearTimeout(this.timer);
    this.stream?.close();
    this.stream = null;
  }

  /** The run is no more. @param {string} text */
  end(text) {
    this.deleted = true;
    this.said(text);
    this.actions = [];
    this.forks = null;
    this.close();
  }

  /** Read the events behind the last record that is known. Of a run that has ended there are none: it is looked at now and then. */
  listen() {
    this.close();
    if (this.behind) {
      this.readOn(0);
      return;
    }
    if (this.ended) {
      this.later(REST);
      return;
    }
    const stream = new EventSource(`${root}/api${this.path}/events?after=${this.head}`);
    this.stream = stream;
    stream.onopen = () => {
      this.connected(true);
      this.opened();
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
      if (event.type !== "ended") return;
      this.close();
      this.later(REST);
    };
    stream.onerror = () => {
      this.lost = true;
      if (stream.readyState !== EventSource.CLOSED) this.connected(false); // the browser connects again by itself
      else if (this.stream === stream) this.later(PATIENCE); // refused: the run has ended, or there are too many streams
    };
  }

  /** Look at the run and its stream again. @param {number} wait  Milliseconds. */
  later(wait) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      if (this.deleted || document.visibilityState !== "visible") return;
      this.callback?.(this.head);
      this.listen();
    }, wait);
  }

  /** @returns {Action[]} */
  allActions() {
    /** @param {string} what @param {unknown} body */
    const tell = (what, body = {}) => async () => {
      const answer = await call(`${this.path}/${what}`, { method: "POST", body });
      this.status = answer.status;
      this.callback?.(this.head);
      this.listen();
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
