// Which rows a list of steps has: the steps as a tree of subgraphs, maps and attempts, or in a line if they are sorted
// or filtered. There are no elements here.
import { everything, traitsOf } from "./choice.js";
import { wordsOf } from "./search_marks.js";
import { tokens } from "./texts.js";

/** @import { Choice, Trait } from "./choice.js" */
/** @import { RunData } from "./run_data.js" */
/** @import { Growth } from "./run_growth.js" */
/** @import { Step } from "./types.js" */
/** @typedef {"step" | "attempt" | "map" | "item"} RowKind */

/**
 * A row, or one that folding hides.
 * @typedef {object} Row
 * @property {string} key
 * @property {RowKind} kind
 * @property {number} index  The step; of a map and an item the first step in it.
 * @property {number} place  Number of the map, the item or the attempt.
 * @property {Row | null} around
 * @property {Row[]} inside
 * @property {number} depth
 */

export class Outline {
  /** @param {RunData} data */
  constructor(data) {
    /** Keys of rows whose inside is hidden. @type {Set<string>} */
    this.closed = new Set();
    this.choice = everything();
    this.data = data;
    /** Rows that are inside of no other. @type {Row[]} */
    this.top = [];
    /** @type {Map<number, Row>} */
    this.stepRows = new Map();
    /** Rows of maps and items, by key. @type {Map<string, Row>} */
    this.groups = new Map();
    this.traits = traitsOf(data.steps);
    /** Steps that the choice takes. @type {Row[]} */
    this.line = [];
    /** Rows that are seen. @type {Row[]} */
    this.rows = [];
    /** Key -> place of a row that is seen. @type {Map<string, number>} */
    this.placeOf = new Map();
    this.read();
  }

  /** Work out the rows of all steps. */
  read() {
    const { steps } = this.data;
    this.top = [];
    this.stepRows = new Map();
    this.groups = new Map();
    this.traits = traitsOf(steps);
    steps.forEach((_, index) => this.addStep(index));
    this.flattenItems();
    this.choose(this.choice);
  }

  /** @param {number} index @returns {Row} */
  addStep(index) {
    const step = this.data.steps[index];
    const row = this.add("step:" + index, "step", index, index, this.around(step, index));
    this.stepRows.set(index, row);
    (step.retries ?? []).forEach((_, at) => this.add("attempt:" + index + ":" + at, "attempt", index, at, row));
    return row;
  }

  /**
   * The run has more steps, or others than before.
   * @param {Growth | null} growth
   * @param {(index: number) => number} moved  From the place that a step had to the one that it has.
   * @returns {boolean} Whether rows are where they were: further ones are at the end.
   */
  grow(growth, moved) {
    const { steps } = this.data, first = steps.length - (growth?.fresh ?? 0);
    const more = growth && !growth.shifted ? [...growth.touched].sort((one, other) => one - other) : [];
    const alike = growth && !growth.shifted && !this.flat && more.every((index) => (index < first ? this.attempts(index) === (steps[index].retries ?? []).length : !steps[index].map));
    if (!alike) { // filters look at all steps, and maps put theirs in order
      this.closed = new Set([...this.closed].map((key) => (key.startsWith("step:") ? "step:" + moved(Number(key.slice(5))) : key)));
      this.read();
      return false;
    }
    this.traits = traitsOf(steps);
    for (const index of more) if (index >= first) this.unrollLast(this.addStep(index));
    return true;
  }

  /** How many failed attempts of a step there are rows of. @param {number} index */
  attempts(index) { return this.stepRows.get(index)?.inside.filter((row) => row.kind === "attempt").length ?? 0; }

  /** Show the row of the last step: at the end, unless an item of a map that began earlier stands there. @param {Row} row */
  unrollLast(row) {
    this.line.push(row);
    let hidden = false, last = true;
    for (let one = row; one; one = /** @type {Row} */ (one.around)) {
      if (one !== row) hidden ||= this.closed.has(one.key);
      last &&= (one.around ? one.around.inside : this.top).at(-1) === one;
    }
    if (hidden) return;
    if (!last) { this.unroll(); return; }
    for (const one of [row, ...row.inside]) {
      this.placeOf.set(one.key, this.rows.length);
      this.rows.push(one);
    }
  }

  /**
   * @param {string} key @param {RowKind} kind @param {number} index @param {number} place @param {Row | null} around
   * @returns {Row}
   */
  add(key, kind, index, place, around) {
    const row = { key, kind, index, place, around, inside: [], depth: around ? around.depth + 1 : 0 };
    (around ? around.inside : this.top).push(row);
    return row;
  }

  /** @param {Step} step @param {number} index @returns {Row | null} */
  around(step, index) {
    const host = step.up === undefined ? null : this.stepRows.get(step.up) ?? null;
    return step.map ? this.item(step.map, index, host) : host;
  }

  /** @param {[number, number]} place @param {number} index @param {Row | null} host @returns {Row | null} */
  item([map, item], index, host) {
    const { around, count } = this.data.run.maps[map];
    if (count === 1) return around ? this.item(around, index, host) : host;
    const key = "item:" + map + ":" + item;
    let row = this.groups.get(key);
    if (!row) {
      let group = this.groups.get("map:" + map);
      if (!group) {
        group = this.add("map:" + map, "map", index, map, around ? this.item(around, index, host) : host);
        this.groups.set(group.key, group);
      }
      row = this.add(key, "item", index, item, group);
      this.groups.set(key, row);
    }
    return row;
  }

  /** Items with one step are shown as that step; items stand in their order. */
  flattenItems() {
    for (const group of this.groups.values()) {
      if (group.kind !== "map") continue;
      group.inside.sort((one, other) => one.place - other.place);
      group.inside = group.inside.map((item) => {
        if (item.inside.length !== 1) return item;
        const [only] = item.inside;
        only.around = group;
        lift(only);
        return only;
      });
    }
  }

  // -- choosing -------------------------------------------------------------------------------------------------

  /**
   * How many steps have a trait.
   * @param {Trait} trait
   */
  count(trait) { return this.data.steps.filter(this.traits[trait]).length; }

  /** The kinds of nodes that ran, by name. */
  kinds() { return [...new Set(this.data.steps.map((step) => this.data.run.kinds[step.part]).filter(Boolean))].sort(); }

  /** Whether only some of the steps are shown. */
  get narrowed() { return Boolean(this.choice.text.trim() || this.choice.only.length || this.choice.kind); }

  /** Whether the rows are in a line. */
  get flat() { return this.narrowed || this.choice.order !== "order"; }

  /**
   * @param {Choice} choice
   * @returns {number} How many steps are shown.
   */
  choose(choice) {
    this.choice = choice;
    const words = wordsOf(choice.text);
    const { steps, run } = this.data;
    const found = steps.map((_, index) => index).filter((index) => {
      const step = steps[index];
      if (choice.kind && run.kinds[step.part] !== choice.kind) return false;
      if (choice.only.length && !choice.only.some((trait) => this.traits[trait](step))) return false;
      return !words.length || this.data.matches(index, words);
    });
    if (choice.order !== "order") {
      const amount = { duration: (/** @type {Step} */ step) => step.work, tokens: (/** @type {Step} */ step) => tokens(step.usage), cost: (/** @type {Step} */ step) => step.usage?.cost ?? 0 }[choice.order];
      found.sort((one, other) => amount(steps[other]) - amount(steps[one]) || one - other);
    }
    this.line = found.map((index) => /** @type {Row} */ (this.stepRows.get(index)));
    this.unroll();
    return found.length;
  }

  // -- folding --------------------------------------------------------------------------------------------------

  /** Work out the rows that are seen. */
  unroll() {
    this.rows = this.flat ? this.line : [];
    const left = this.flat ? [] : [...this.top].reverse();
    for (let row = left.pop(); row; row = left.pop()) {
      this.rows.push(row);
      if (!this.closed.has(row.key)) for (let at = row.inside.length - 1; at >= 0; at--) left.push(row.inside[at]);
    }
    this.placeOf = new Map(this.rows.map((row, place) => [row.key, place]));
  }

  /**
   * @param {Row} row
   * @param {boolean} [open]  By default the other way round.
   */
  fold(row, open = this.closed.has(row.key)) {
    if (!row.inside.length || this.flat) return;
    if (open) this.closed.delete(row.key);
    else this.closed.add(row.key);
    this.unroll();
  }

  /** Close all rows that have others inside, or open all. */
  foldAll() {
    const rows = [...this.stepRows.values(), ...this.groups.values()].filter((row) => row.inside.length);
    const close = rows.some((row) => !this.closed.has(row.key));
    this.closed = new Set(close ? rows.map((row) => row.key) : []);
    this.unroll();
  }

  /**
   * Open what hides a step.
   * @param {number} index
   */
  reveal(index) {
    let row = this.stepRows.get(index)?.around ?? null, changed = false;
    for (; row; row = row.around) changed = this.closed.delete(row.key) || changed;
    if (changed) this.unroll();
  }

  /**
   * The row that shows a step: its own, or the closed one that it is inside of.
   * @param {number} index
   * @returns {Row | null}
   */
  rowOf(index) {
    let row = this.stepRows.get(index) ?? null;
    while (row && !this.placeOf.has(row.key)) row = this.flat ? null : row.around;
    return row;
  }

  /**
   * The step some steps further down in the list, or up.
   * @param {number} index
   * @param {number} by
   */
  beside(index, by) {
    const row = this.rowOf(index), step = Math.sign(by);
    let place = row ? /** @type {number} */ (this.placeOf.get(row.key)) : step > 0 ? -1 : this.rows.length, found = index;
    for (let left = Math.abs(by); left > 0;) {
      place += step;
      if (place < 0 || place >= this.rows.length) break;
      if (this.rows[place].kind !== "step") continue;
      found = this.rows[place].index;
      left--;
    }
    return found;
  }

  /**
   * All steps inside a row, its own included.
   * @param {Row} row
   * @returns {number[]}
   */
  members(row) {
    const found = [], left = [row];
    for (let next = left.pop(); next; next = left.pop()) {
      if (next.kind === "step") found.push(next.index);
      left.push(...next.inside);
    }
    return found;
  }
}

/** Put a row and all in it one level up. @param {Row} row */
function lift(row) {
  const left = [row];
  for (let next = left.pop(); next; next = left.pop()) { next.depth--; left.push(...next.inside); }
}
