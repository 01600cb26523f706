// A run's data, and what follows from it: states, moments, where a record belongs, which steps a search finds.
import { patched } from "./differences.js";

/** @import { RunDocument, State, Step } from "./types.js" */

export class RunData {
  /** @param {RunDocument} run */
  constructor(run) {
    this.run = run;
    this.steps = run.steps;
    this.head = run.head;
    /** States that were looked at; others follow from them. @type {Map<number, State>} */
    this.states = new Map();
    /** Record -> the step that it ended. @type {Map<number, number>} */
    this.bySeq = new Map();
    /** The n-th step of its node in its branch -> step: the same in another run of the graph. @type {Map<string, number>} */
    this.named = new Map();
    /** @type {string[]} */
    this.names = [];
    /** Texts that a search looks at, made when they are needed. @type {string[]} */
    this.texts = [];
    /** Edge -> the steps that took it, and that did not. @type {Map<string, { took: number[], left: number[] }>} */
    this.edges = new Map();
    /** @type {Map<string, number>} */
    const counts = new Map();
    this.steps.forEach((step, index) => {
      if (step.seq !== undefined) this.bySeq.set(step.seq, index);
      const place = (step.path ?? "") + "\n" + (step.part || step.node), count = counts.get(place) ?? 0;
      counts.set(place, count + 1);
      this.names.push(place + "\n" + count);
      this.named.set(this.names[index], index);
      for (const edge of step.took ?? []) this.edge(edge).took.push(index);
      for (const edge of step.left ?? []) this.edge(edge).left.push(index);
    });
    /** Milliseconds. */
    this.span = run.records.reduce((most, record) => Math.max(most, record[0]), 1);
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
    const found = this.steps.flatMap((step, index) => (["waiting", "interrupted", "running", "queued"].includes(step.status) ? [index] : []));
    const inside = new Set(found.map((index) => this.steps[index].up));
    const asks = found.find((index) => this.steps[index].status === "waiting" && !inside.has(index));
    return asks ?? found.find((index) => !inside.has(index)) ?? null;
  }

  /**
   * The record at which a step is looked at: the one that ended it, else the newest.
   * @param {number} index
   */
  seqOf(index) { return this.steps[index].seq ?? this.head; }

  /**
   * The number of a step of this run as it was before: steps of a subgraph may have come between.
   * @param {RunData} before
   * @param {number} index
   */
  indexIn(before, index) { return this.named.get(before.names[index]) ?? Math.min(index, this.steps.length - 1); }

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

  /**
   * Whether all words occur in a step, its calls or its prompts.
   * @param {number} index
   * @param {string[]} words
   */
  matches(index, words) {
    this.texts[index] ??= searched(this.run, this.steps[index]);
    return words.every((word) => this.texts[index].includes(word));
  }
}

/** @param {RunDocument} run @param {Step} step */
function searched(run, step) {
  const said = [JSON.stringify(step)];
  for (const call of step.calls ?? []) for (const name of call.messages ?? []) said.push(JSON.stringify(run.messages[name] ?? ""));
  return said.join("\n").toLowerCase();
}
