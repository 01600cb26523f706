// Where the words of a search stand in a run, and marks on them in what is shown.

/** @import { RunData } from "./run_data.js" */
/** @import { Tab } from "./detail.js" */

/**
 * A step with words of a search.
 * @typedef {{ index: number, tab: Tab, words: string[], whole: boolean }} Hit  `whole`: it has the words as they were typed.
 */

const MOST_MARKS = 1000;
const NAME = "sought";

/** The words of a search, in small letters. @param {string} text */
export function wordsOf(text) { return text.toLowerCase().split(/\s+/).filter(Boolean); }

/**
 * The first step that has all words; if there is none and the run is complete, the first one with most of the words
 * that the list of runs searches for, which are sequences of letters and digits.
 * @param {RunData} data
 * @param {string} text
 * @param {boolean} complete  Whether the page has all of the run.
 * @returns {Hit | null}
 */
export function hitOf(data, text, complete) {
  const words = wordsOf(text);
  if (!words.length) return null;
  const index = first(data, words, words.length);
  if (index !== null) return { index, tab: tabOf(data, index, words), words, whole: true };
  const parts = complete ? [...new Set(text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [])] : [];
  for (let least = parts.length; least > 0; least--) {
    const near = first(data, parts, least);
    if (near !== null) return { index: near, tab: tabOf(data, near, parts), words: parts, whole: false };
  }
  return null;
}

/** The first step that has some of the words, innermost. @param {RunData} data @param {string[]} words @param {number} least */
function first(data, words, least) {
  const found = data.steps.flatMap((_, index) => (words.filter((word) => data.matches(index, [word])).length >= least ? [index] : []));
  const around = new Set(found.map((index) => data.steps[index].up));
  return found.find((index) => !around.has(index)) ?? null;
}

/** The tab that shows words of a step: what a tool or a model said before what a model was sent. @param {RunData} data @param {number} index @param {string[]} words @returns {Tab} */
function tabOf(data, index, words) {
  const step = data.steps[index], calls = step.calls ?? [];
  const has = (/** @type {any} */ value) => { const text = (JSON.stringify(value) ?? "").toLowerCase(); return words.some((word) => text.includes(word)); };
  if (has([step.error, step.trace, step.retries])) return "step";
  if (has([step.asked, calls.filter((call) => call.kind !== "model")])) return "tools";
  if (has(calls.map((call) => [call.result, call.error, call.instead]))) return "model";
  if (has(step.patch)) return "state";
  return has(calls.map((call) => data.messagesOf(call))) ? "model" : "step";
}

/** The marks in some elements: they follow what is shown, and change nothing of it. */
export class SearchMarks {
  /** @param {HTMLElement[]} boxes */
  constructor(boxes) {
    this.boxes = boxes;
    /** @type {string[]} */
    this.words = [];
    /** @type {Range[]} */
    this.ranges = [];
    this.waits = false;
    const seen = new MutationObserver(() => { if (this.words.length) this.later(); });
    for (const box of boxes) seen.observe(box, { childList: true, subtree: true });
  }

  /** Mark other words. @param {string[]} words */
  look(words) {
    if (words.join() === this.words.join()) return;
    this.words = words;
    this.later();
  }

  later() {
    if (this.waits) return;
    this.waits = true;
    requestAnimationFrame(() => { this.waits = false; this.mark(); });
  }

  /** Mark the words in what is shown now. */
  mark() {
    if (!("highlights" in CSS)) return; // an older browser shows no marks
    const all = CSS.highlights.get(NAME) ?? new Highlight();
    for (const range of this.ranges) all.delete(range);
    this.ranges = this.boxes.flatMap((box) => (box.hidden ? [] : rangesIn(box, this.words))).slice(0, MOST_MARKS);
    for (const range of this.ranges) all.add(range);
    CSS.highlights.set(NAME, all);
  }

  /** Unfold the first mark in each element, scroll to it there, and bring the last one of them into the window. */
  reveal() {
    this.mark();
    /** @type {HTMLElement | null} */
    let last = null;
    for (const box of this.boxes) {
      const range = this.ranges.find((one) => box.contains(one.startContainer)), element = range?.startContainer.parentElement;
      if (!range || !element) continue;
      for (let at = element; at !== box && at.parentElement; at = at.parentElement) {
        if (at instanceof HTMLDetailsElement) at.open = true;
        if (at.classList.contains("cut")) /** @type {HTMLElement | null} */ (at.nextElementSibling)?.click(); // "Show all"
      }
      scrollTo(range, box);
      last = element;
    }
    const { top = 0, bottom = 0 } = last?.getBoundingClientRect() ?? {};
    if (top < 0 || bottom > innerHeight) last?.scrollIntoView({ block: "nearest" });
  }
}

/** Scroll what is around a text, up to a box, until the text is seen. @param {Range} range @param {HTMLElement} box */
function scrollTo(range, box) {
  for (let at = range.startContainer.parentElement; at; at = at === box ? null : at.parentElement) {
    if (at.scrollHeight <= at.clientHeight) continue;
    const { top, bottom } = range.getBoundingClientRect(), around = at.getBoundingClientRect();
    if (top < around.top || bottom > around.bottom) at.scrollTop += top - around.top - around.height / 3;
  }
}

/** @param {HTMLElement} box @param {string[]} words @returns {Range[]} */
function rangesIn(box, words) {
  const found = [], walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
  while (words.length && found.length < MOST_MARKS && walker.nextNode()) {
    const node = walker.currentNode, text = (node.nodeValue ?? "").toLowerCase();
    if (text.length !== node.nodeValue?.length || node.parentElement?.closest("button, select, textarea, .by")) continue; // a letter that has no small one of its length
    for (const word of words) for (let at = text.indexOf(word); at >= 0 && found.length < MOST_MARKS; at = text.indexOf(word, at + word.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + word.length);
      found.push(range);
    }
  }
  return found.sort((one, other) => one.compareBoundaryPoints(Range.START_TO_START, other));
}
