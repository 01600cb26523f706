// A run's data, and what follows from it: states, moments, where a record belongs, which steps a search finds.
import { patched } from "./differences.js";
import { merge, StepNumbers } from "./run_growth.js";
import { lasting } from "./texts.js";

/** @import { Growth } from "./run_growth.js" */
/** @import { Call, RunChange, RunDocument, State, Step } from "./types.js" */

const LIVE = ["waiting", "interrupted", "running", "queued"];

export class RunData {
  /** @type {Step[]} */
  steps = [];
  head = 0;
  /** Milliseconds. */
  span = 1;
  /** States that were looked at; others follow from them. @type {Map<number, State>} */
  states = new Map();
  /** Record -> the step that it ended. @type {Map<number, number>} */
  bySeq = new Map();
  /** Record of a call or a question -> its step. @type {Map<number, number>} */
  within = new Map();
  /** The n-th step of its node in its branch -> step: the same in another run of the graph. @type {Map<string, number>} */
  named = new Map();
  /** @type {string[]} */
  names = [];
  /** How many steps a node has in a branch. @type {Map<string, number>} */
  counts = new Map();
  /** Node in the picture -> its steps. @type {Map<string, number[]>} */
  ofPart = new Map();
  /** Steps that have not ended. @type {Set<number>} */
  live = new Set();
  /** Texts that a search looks at, made when they are needed. @type {string[]} */
  texts = [];
  /** Edge -> the steps that took it, and that did not. @type {Map<string, { took: number[], left: number[] }>} */
  edges = new Map();

  /** @param {RunDocument} run */
  constructor(run) {
    this.run = run;
    this.numbers = new StepNumbers(run);
    this.read();
  }

  /** Work out what follows from the run. */
  read() {
    const { run } = this;
    this.steps = run.steps;
    this.head = run.head;
    for (const found of [this.states, this.bySeq, this.within, this.named, this.counts, this.ofPart, this.live, this.edges]) found.clear();
    this.names = [];
    this.texts = [];
    this.steps.forEach((_, index) => this.name(index));
    this.steps.forEach((_, index) => this.note(index));
    this.span = run.records.reduce((most, record) => Math.max(most, record[0]), 1);
  }

  /** Whether the server has more records. */
  get behind() { return (this.run.of ?? this.head) > this.head; }

  /** A step that is new. @param {number} index */
  name(index) {
    const step = this.steps[index], place = (step.path ?? "") + "\n" + (step.part || step.node), count = this.counts.get(place) ?? 0;
    this.counts.set(place, count + 1);
    this.names.push(place + "\n" + count);
    this.named.set(this.names[index], index);
    const found = this.ofPart.get(step.part);
    if (found) found.push(index);
    else this.ofPart.set(step.part, [index]);
  }

  /** A step that is new, or has changed. @param {number} index */
  note(index) {
    const step = this.steps[index];
    if (step.seq !== undefined) this.bySeq.set(step.seq, index);
    for (const one of [...(step.calls ?? []), ...(step.asked ?? [])]) this.within.set(one.seq, index);
    if (LIVE.includes(step.status)) this.live.add(index);
    else this.live.delete(index);
    for (const edge of step.took ?? []) include(this.edge(edge).took, index);
    for (const edge of step.left ?? []) include(this.edge(edge).left, index);
    delete this.texts[index];
    this.states.delete(index);
  }

  /**
   * Take over what became of the run.
   * @param {RunChange} change
   * @returns {Growth | null} null: it was read anew, and any step may be elsewhere; `indexOf` says where.
   */
  grow(change) {
    const { run } = this;
    if (change.whole) {
      this.run = change.whole;
      this.numbers = new StepNumbers(this.run);
      this.read();
      return null;
    }
    const records = run.records.length, growth = merge(run, this.numbers, change);
    this.head = run.head;
    if (growth.shifted) { this.read(); return growth; }
    for (let index = this.steps.length - growth.fresh; index < this.steps.length; index++) this.name(index);
    for (const index of growth.touched) this.note(index);
    for (const [at] of run.records.slice(records)) this.span = Math.max(this.span, at);
    return growth;
  }

  /**
   * The steps that took an edge, and those that did not.
   * @param {string} name
   */
  edge(name) {
    let found = this.edges.get(name);
    if (!found) this.edges.set(name, (found = { took: [], left: [] }));
    return found;
  }

  // -- states ---------------------------------------------------------------------------------------------------

  /** @param {number} index @returns {State | null} */
  stateBefore(index) {
    const base = this.base(index);
    return base === null ? null : patched(base, this.steps[index].merged);
  }

  /**
   * The state that a step's own state is described by.
   * @param {number} index
   * @returns {State | null}
   */
  base(index) {
    const { base } = this.steps[index];
    if (base === undefined) return null;
    return base < 0 ? this.run.whole[-1 - base] : this.stateAfter(base);
  }

  /** @param {number} index @returns {State | null} */
  stateAfter(index) {
    const way = [];
    let at = index;
    /** @type {State | null} */
    let state = null;
    while (state === null) {
      const known = this.states.get(at);
      if (known) { state = known; break; }
      const { base } = this.steps[at];
      if (base === undefined) return null;
      way.push(at);
      if (base < 0) state = this.run.whole[-1 - base];
      else at = base;
    }
    for (const number of way.reverse()) {
      const step = this.steps[number];
      state = patched(patched(state, step.merged), step.patch);
      if (number % 64 === 0) this.states.set(number, state); // enough to find any other from in a moment
    }
    if (this.states.size < 400) this.states.set(index, state);
    return state;
  }

  // -- moments --------------------------------------------------------------------------------------------------

  /** @param {number} seq */
  record(seq) { return this.run.records[Math.min(Math.max(seq, 1), this.run.records.length) - 1]; }

  /** @param {number} seq */
  time(seq) { return this.record(seq)[0]; }

  /** A moment in words: how long after the beginning of the run, or of the fork. @param {number} time  Milliseconds. */
  clock(time) {
    const { forked = 0 } = this.run;
    return time < forked ? "before the fork" : lasting((time - forked) / 1000);
  }

  /** @param {number} seq */
  type(seq) { return this.run.types[this.record(seq)[1]]; }

  /**
   * The step that a record ended; else the last one at work then; else the one that had ended last. -1: none.
   * @param {number} seq
   */
  stepAt(seq) {
    const exact = this.bySeq.get(seq);
    if (exact !== undefined && this.steps[exact].status !== "dropped") return exact;
    let work = -1, last = -1, ended = -1;
    this.steps.forEach((step, index) => {
      if (step.began > seq) return;
      if (step.seq === undefined || step.seq > seq) work = index;
      else if (step.seq >= ended) { last = index; ended = step.seq; }
    });
    return work >= 0 ? work : last;
  }

  /**
   * Where a run stands that has not ended: the step that waits or works, innermost.
   * @returns {number | null}
   */
  open() {
    const found = [...this.live].sort((one, other) => one - other);
    const inside = new Set(found.map((index) => this.steps[index].up));
    const asks = found.find((index) => this.steps[index].status === "waiting" && !inside.has(index));
    return asks ?? found.find((index) => !inside.has(index)) ?? null;
  }

  /**
   * The step that a failed run failed at, innermost.
   * @returns {number | null}
   */
  failed() {
    const found = this.steps.flatMap((step, index) => (step.status === "failed" ? [index] : []));
    const same = found.filter((index) => this.steps[index].error === this.run.error), known = same.length ? same : found;
    const around = new Set(known.map((index) => this.steps[index].up));
    return known.findLast((index) => !around.has(index)) ?? null;
  }

  /**
   * The step that a reader of the run wants to see first: the one that waits or works, or the one that failed.
   * @returns {number | null}
   */
  foremost() { return this.open() ?? (this.run.status === "failed" ? this.failed() : null); }

  /**
   * The record at which a step is looked at: the one that ended it, else the newest.
   * @param {number} index
   */
  seqOf(index) { return this.steps[index].seq ?? this.head; }

  /**
   * The number of the record in which a step was done or failed; null: it was not.
   * @param {number} index
   */
  ended(index) {
    const { seq } = this.steps[index];
    return seq !== undefined && ["step_done", "step_failed"].includes(this.type(seq)) ? seq : null;
  }

  /**
   * The place of a step that had this name before the run was read anew.
   * @param {string | undefined} name
   * @param {number} index  Where it was.
   */
  indexOf(name, index) { return this.named.get(name ?? "") ?? Math.min(index, this.steps.length - 1); }

  /**
   * The seconds from the beginning of the first of some steps to the end of the last.
   * @param {number[]} indices
   */
  elapsed(indices) {
    let from = Infinity, to = 0;
    for (const index of indices) {
      const [began, ended] = this.steps[index].t;
      from = Math.min(from, began);
      to = Math.max(to, ended ?? this.span);
    }
    return Math.max(0, to - from) / 1000;
  }

  /** The call that a record began. @param {number} seq @returns {Call | undefined} */
  callOf(seq) { return (this.steps[this.within.get(seq) ?? -1]?.calls ?? []).find((one) => one.seq === seq); }

  /** The messages of a request; null: one that the journal does not hold. @param {Call} call @returns {any[]} */
  messagesOf(call) {
    /** @type {string[][]} */
    const parts = [];
    let most = Infinity;
    for (let at = /** @type {Call | undefined} */ (call); at && most > 0;) {
      const { messages = [], behind: [seq, before] = [0, 0] } = at;
      parts.push(messages.slice(0, Math.max(0, most - before)));
      most = Math.min(most, before);
      at = this.callOf(seq);
    }
    return parts.reverse().flat().map((name) => this.run.messages[name] ?? null);
  }

  /**
   * Whether all words occur in a step, its calls or its prompts.
   * @param {number} index
   * @param {string[]} words
   */
  matches(index, words) {
    this.texts[index] ??= searched(this, this.steps[index]);
    return words.every((word) => this.texts[index].includes(word));
  }
}

/** Put a step into a list of steps, in order. @param {number[]} list @param {number} index */
function include(list, index) {
  let at = list.length;
  while (at > 0 && list[at - 1] > index) at--;
  if (list[at - 1] !== index) list.splice(at, 0, index);
}

/** What a search looks at: times, numbers of records and digests are none of it. @param {RunData} data @param {Step} step */
function searched(data, step) {
  const { t, began, seq, work, waits, base, up, depth, map, part, usage, calls = [], asked = [], ...rest } = step;
  const said = [JSON.stringify(rest), ...asked.map(({ seq, answered, ...one }) => JSON.stringify(one))];
  for (const one of calls) {
    const { t, seq, settled, messages, behind, offer, usage, ...call } = one;
    said.push(JSON.stringify(call), ...data.messagesOf(one).map((message) => JSON.stringify(message ?? "")));
  }
  return said.join("\n").toLowerCase();
}
