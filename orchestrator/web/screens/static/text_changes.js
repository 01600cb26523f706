// @ts-check
// The lines that differ between two texts.

/** @typedef {{kind: "same" | "cut" | "add", text: string}} Line */

const LONGEST = 2000; // lines of each text that are compared

/**
 * A shortest way from one text to the other, line by line.
 * @param {string} before
 * @param {string} after
 * @returns {Line[]}
 */
export function changes(before, after) {
  const [left, right] = [before.split("\n").slice(0, LONGEST), after.split("\n").slice(0, LONGEST)];
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start += 1;
  let end = 0;
  while (end < left.length - start && end < right.length - start && left[left.length - 1 - end] === right[right.length - 1 - end]) end += 1;
  const [a, b] = [left.slice(start, left.length - end), right.slice(start, right.length - end)];
  const width = b.length + 1;
  const common = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
  /** @type {Line[]} */
  const lines = left.slice(0, start).map((text) => ({ kind: "same", text }));
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { lines.push({ kind: "same", text: a[i] }); i += 1; j += 1; }
    else if (j >= b.length || (i < a.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) { lines.push({ kind: "cut", text: a[i] }); i += 1; }
    else { lines.push({ kind: "add", text: b[j] }); j += 1; }
  }
  return [...lines, ...left.slice(left.length - end).map((text) => /** @type {Line} */ ({ kind: "same", text }))];
}
