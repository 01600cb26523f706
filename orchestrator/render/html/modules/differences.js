// Differences: states that follow from others, and lines of two texts.
import { number } from "./texts.js";

/** @import { Patch, State } from "./types.js" */
/** @typedef {[" " | "+" | "-", string]} Line */

/**
 * The state with a patch.
 * @param {State} state
 * @param {Patch | undefined} patch
 * @returns {State}
 */
export function patched(state, patch) {
  if (!patch) return state;
  /** @type {State} */
  const made = Object.assign(Object.create(null), state);
  for (const [name, [how, value, gone]] of Object.entries(patch)) {
    if (how === "+") made[name] = typeof value === "string" ? (made[name] ?? "") + value : [...(made[name] ?? []), ...value];
    else if (how === "~") {
      const whole = Object.assign(Object.create(null), made[name]);
      Object.assign(whole, value);
      for (const key of gone ?? []) delete whole[key];
      made[name] = whole;
    } else made[name] = value;
  }
  return made;
}

/**
 * Lines of two texts; long ones are shown as wholly changed between what is alike.
 * @param {string} before
 * @param {string} after
 * @returns {Line[]}
 */
export function differences(before, after) {
  const a = before.split("\n"), b = after.split("\n");
  let head = 0, tail = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const x = a.slice(head, a.length - tail), y = b.slice(head, b.length - tail);
  const middle = x.length * y.length > 250000 ? [...x.map(cut), ...y.map(added)] : aligned(x, y);
  return [...near(a.slice(0, head), true), ...middle, ...near(a.slice(a.length - tail), false)];
}

/** @param {string} line @returns {Line} */
export function added(line) { return ["+", line]; }

/** @param {string} line @returns {Line} */
function cut(line) { return ["-", line]; }

/** @param {string} line @returns {Line} */
function alike(line) { return [" ", line]; }

/**
 * Those of many equal lines that are next to a change.
 * @param {string[]} lines
 * @param {boolean} end
 * @returns {Line[]}
 */
function near(lines, end) {
  const most = 3;
  if (lines.length <= most + 1) return lines.map(alike);
  const left = alike("… " + number(lines.length - most) + " lines alike");
  const kept = (end ? lines.slice(-most) : lines.slice(0, most)).map(alike);
  return end ? [left, ...kept] : [...kept, left];
}

/**
 * @param {string[]} x
 * @param {string[]} y
 * @returns {Line[]}
 */
function aligned(x, y) {
  const table = Array.from({ length: x.length + 1 }, () => new Uint32Array(y.length + 1));
  for (let i = x.length - 1; i >= 0; i--)
    for (let j = y.length - 1; j >= 0; j--)
      table[i][j] = x[i] === y[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
  /** @type {Line[]} */
  const found = [];
  let i = 0, j = 0;
  while (i < x.length && j < y.length) {
    if (x[i] === y[j]) { found.push(alike(x[i])); i++; j++; }
    else if (table[i + 1][j] >= table[i][j + 1]) found.push(cut(x[i++]));
    else found.push(added(y[j++]));
  }
  while (i < x.length) found.push(cut(x[i++]));
  while (j < y.length) found.push(added(y[j++]));
  return found;
}
