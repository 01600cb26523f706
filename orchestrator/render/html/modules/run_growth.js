// What became of a run, put into what a page has of it. It costs what has changed, except where a step comes between
// others: then steps behind it have other places than before.
import { patched } from "./differences.js";

/** @import { RunChange, RunDocument, Step } from "./types.js" */

/**
 * @typedef {object} Growth
 * @property {Set<number>} touched  Places of steps that are new or other than before.
 * @property {number} fresh  How many of them are new. They are the last ones, unless steps were moved.
 * @property {boolean} shifted  Whether steps have other places than before.
 * @property {boolean} rewound  Whether the end of the picture's moments was taken back.
 * @property {(index: number) => number} moved  From the place that a step had to the one that it has.
 */

/** Which step has which number. */
export class StepNumbers {
  /** @param {RunDocument} run */
  constructor(run) {
    /** @type {number[]} */
    this.numbers = run.numbers ?? run.steps.map((_, index) => index);
    /** @type {Map<number, number>} */
    this.places = new Map();
    this.count();
  }

  count() { this.places = new Map(this.numbers.map((number, place) => [number, place])); }

  /** @param {number} number */
  place(number) { return this.places.get(number) ?? -1; }

  /**
   * Put a step where its number belongs: behind the last one inside the step around it.
   * @param {Step[]} steps
   * @param {number} number
   * @param {Step} step
   * @returns {boolean} Whether others have other places now.
   */
  put(steps, number, step) {
    let at = steps.length;
    if (step.up !== undefined) {
      const around = this.place(step.up), depth = steps[around].depth ?? 0;
      for (at = around + 1; at < steps.length && (steps[at].depth ?? 0) > depth;) at++;
    }
    const last = at === steps.length;
    steps.splice(at, 0, step);
    this.numbers.splice(at, 0, number);
    if (last) this.places.set(number, at);
    else this.count();
    return !last;
  }
}

/**
 * Take over what changed.
 * @param {RunDocument} run
 * @param {StepNumbers} numbers
 * @param {RunChange} change
 * @returns {Growth}
 */
export function merge(run, numbers, change) {
  Object.assign(run, change.head, { types: change.types });
  if ("output" in change) run.output = change.output;
  tail(run.records, change.records);
  tail(run.whole, change.whole_states);
  tail(run.talk, change.talk);
  tail(run.idle, change.idle);
  Object.assign(run.messages, change.messages);
  Object.assign(run.offers, change.offers);
  Object.assign(run.edges, change.edges);
  for (const [edge, more] of Object.entries(change.began)) tail(run.began[edge] ??= [], more);
  for (const patch of change.final) run.final = patched(run.final, patch);
  const rewound = run.picture.end;
  if (rewound) run.picture.moments.pop();
  run.picture.moments.push(...change.moments, ...(change.end ? [change.end] : []));
  run.picture.end = change.end !== null;
  const growth = { ...takeSteps(run, numbers, change), rewound };
  for (const [number, { items, ...map }] of change.maps) {
    const known = run.maps[number]?.items ?? {};
    run.maps[number] = { ...map, source: map.source === null ? null : numbers.place(map.source), items: Object.assign(known, items) };
  }
  return growth;
}

/**
 * @template T
 * @param {T[]} list
 * @param {[number, T[]]} more
 */
function tail(list, [kept, more]) {
  list.length = kept;
  for (const one of more) list.push(one);
}

/** @param {RunDocument} run @param {StepNumbers} numbers @param {RunChange} change @returns {Omit<Growth, "rewound">} */
function takeSteps(run, numbers, change) {
  const { steps } = run, before = [...numbers.numbers], come = new Set();
  let fresh = 0, shifted = false;
  for (const [number, kept, step] of change.steps) {
    const at = numbers.place(number);
    come.add(step);
    if (at < 0) {
      shifted = numbers.put(steps, number, step) || shifted;
      fresh++;
    } else {
      const calls = [...(steps[at].calls ?? []).slice(0, kept), ...(step.calls ?? [])];
      if (calls.length) step.calls = calls;
      steps[at] = step;
    }
  }
  const moved = shifted ? (/** @type {number} */ index) => numbers.place(before[index]) : (/** @type {number} */ index) => index;
  if (shifted) {
    for (const step of steps) if (!come.has(step)) rename(step, moved);
    for (const map of run.maps) if (map.source !== null) map.source = moved(map.source);
  }
  for (const step of come) rename(step, (number) => numbers.place(number));
  for (const [number, work] of change.work) steps[numbers.place(number)].work = work;
  return { touched: new Set(change.steps.map(([number]) => numbers.place(number))), fresh, shifted, moved };
}

/** @param {Step} step @param {(name: number) => number} place */
function rename(step, place) {
  if (step.up !== undefined) step.up = place(step.up);
  if (step.base !== undefined && step.base >= 0) step.base = place(step.base);
}
