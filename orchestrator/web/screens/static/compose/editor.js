// @ts-check
// A text area with line numbers, colours and marks. The text area is the browser's own, so undo, selection, input
// methods and readers work as everywhere; the colours lie below it, drawn for the lines that are seen.

import { make } from "../elements.js";
import { alike, BEGIN, tokensOf } from "./tokens.js";

/** @import { State, Token } from "./tokens.js" */
/** @typedef {{from: number, to: number, with: string}} Edit  Characters to replace. */
/** @typedef {{text: string, state: State, tokens: Token[] | null, next: State}} Line  Without tokens, its states are not known. */
/** @typedef {{before: string, after: string, at: number}} Far  A change of the whole text, and where the caret was. */
/** @typedef {{at: number, tokens: Token[] | null, row: HTMLElement, number: HTMLElement}} Row  What is drawn of a line. */

const LONG = 400; // lines that are inserted without the browser's undo: Chromium would take seconds
const BACK = 10; // such changes that are undone here
const MORE = 40; // lines drawn above and below those that are seen

export class Editor {
  /**
   * @param {HTMLElement} box  Scrolls; has `.paper`, and in it the gutter and the sheet.
   * @param {{changed: () => void, moved: () => void}} how  What to do after a change, and when the caret is on another line.
   */
  constructor(box, how) {
    this.box = box;
    this.how = how;
    this.area = /** @type {HTMLTextAreaElement} */ (box.querySelector("textarea"));
    this.lit = /** @type {HTMLElement} */ (box.querySelector(".lit"));
    this.gutter = /** @type {HTMLElement} */ (box.querySelector(".gutter"));
    this.paper = /** @type {HTMLElement} */ (box.querySelector(".paper"));
    this.height = parseFloat(getComputedStyle(this.area).lineHeight);
    /** @type {Line[]} */
    this.lines = [];
    /** Line, from 0 -> its worst mark. @type {Map<number, "fault" | "warning">} */
    this.marks = new Map();
    /** Lines, from 0, that are marked as chosen. @type {[number, number] | null} */
    this.chosen = null;
    /** The lines that are drawn. @type {Map<Line, Row>} */
    this.rows = new Map();
    /** @type {Row[]} */
    this.spare = [];
    this.valid = 0; // lines from the first on whose tokens are those of the text
    /** Changes that the browser cannot undo, the newest last; and those that were undone. @type {[Far[], Far[]]} */
    this.far = [[], []];
    this.caret = -1;
    this.wide = 0;
    this.lighted = 0; // lines whose tokens were found
    this.frame = 0; // the next one, in which the text is read
    this.area.addEventListener("input", () => this.later());
    box.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => { this.widen(); this.draw(); }).observe(box);
    document.addEventListener("selectionchange", () => this.moved());
    this.area.addEventListener("keydown", (event) => this.press(event));
    this.area.addEventListener("scroll", () => { this.area.scrollLeft = 0; this.area.scrollTop = 0; this.widen(); });
    this.read();
  }

  get text() { return this.area.value; }

  /** The line of the caret, from 0. */
  get line() { return this.lineOf(this.area.selectionStart); }

  /** Characters before a line. @param {number} line */
  startOf(line) {
    let at = 0;
    for (let one = 0; one < line && one < this.lines.length; one++) at += this.lines[one].text.length + 1;
    return at;
  }

  /** @param {number} at */
  lineOf(at) {
    let line = 0;
    for (let start = 0; line < this.lines.length - 1; line++) {
      start += this.lines[line].text.length + 1;
      if (start > at) break;
    }
    return line;
  }

  // -- changes --------------------------------------------------------------------------------------------------

  /**
   * Change the text so that it can be undone.
   * @param {Edit} edit
   */
  replace({ from, to, with: text }) {
    this.area.focus({ preventScroll: true });
    this.area.setSelectionRange(from, to);
    const long = text.split("\n").length > LONG;
    const done = !long && text ? document.execCommand("insertText", false, text) : !long && (from === to || document.execCommand("delete"));
    if (!done) { // a browser that has no such command, or that takes seconds for it
      const before = this.text;
      this.area.setRangeText(text, from, to, "end");
      this.far = [[...this.far[0].slice(1 - BACK), { before, after: this.text, at: from }], []];
      this.later();
    }
    this.flush();
  }

  /** Make the whole text another one, by one change of what differs. @param {string} text */
  become(text) {
    const now = this.text;
    if (now === text) return;
    let head = 0, tail = 0;
    const most = Math.min(now.length, text.length);
    while (head < most && now[head] === text[head]) head++;
    while (tail < most - head && now[now.length - 1 - tail] === text[text.length - 1 - tail]) tail++;
    this.replace({ from: head, to: now.length - tail, with: text.slice(head, text.length - tail) });
  }

  /** Undo what the browser cannot, or do it again, if the text is as that change left it. @param {boolean} again @returns {boolean} */
  back(again) {
    const [undone, done] = again ? [this.far[0], this.far[1]] : [this.far[1], this.far[0]], last = done.at(-1);
    if (!last || this.text !== (again ? last.before : last.after)) return false;
    undone.push(/** @type {Far} */ (done.pop()));
    this.area.value = again ? last.after : last.before;
    this.area.setSelectionRange(last.at, last.at);
    this.later();
    this.flush();
    return true;
  }

  /** Enter keeps the indentation, one deeper behind what opens a block. @param {KeyboardEvent} event */
  press(event) {
    const key = event.key.toLowerCase();
    if ((event.ctrlKey || event.metaKey) && !event.altKey && (key === "z" || key === "y") && this.back(key === "y" || event.shiftKey)) event.preventDefault();
    if (event.key !== "Enter" || event.isComposing || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.flush();
    const { selectionStart: from, selectionEnd: to } = this.area;
    const before = this.lines[this.lineOf(from)].text.slice(0, from - this.startOf(this.lineOf(from)));
    const indent = /^ */.exec(before)?.[0] ?? "";
    this.replace({ from, to, with: `\n${indent}${/:\s*[|>]?[-+]?\s*$/.test(before) && before.trim() ? "  " : ""}` });
  }

  /** Read the text before it is painted: a browser that inserts many lines says so for each of them. */
  later() {
    this.frame ||= requestAnimationFrame(() => this.flush());
  }

  /** Read the text now, if it has changed. */
  flush() {
    if (!this.frame) return;
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.read();
  }

  /** Take over the text. Only lines that changed lose their colours. */
  read() {
    const texts = this.area.value.split("\n"), { lines } = this;
    let head = 0, tail = 0;
    const most = Math.min(texts.length, lines.length);
    while (head < most && texts[head] === lines[head].text) head++;
    while (tail < most - head && texts[texts.length - 1 - tail] === lines[lines.length - 1 - tail].text) tail++;
    const made = texts.slice(head, texts.length - tail).map((text, at) => {
      const old = head + at < lines.length - tail ? lines[head + at] : null; // a line that changed keeps what is drawn of it
      return old ? Object.assign(old, { text, tokens: null }) : /** @type {Line} */ ({ text, state: BEGIN, tokens: null, next: BEGIN });
    });
    if (made.length || lines.length !== texts.length) {
      const shift = texts.length - lines.length;
      this.lines = [...lines.slice(0, head), ...made, ...lines.slice(lines.length - tail)];
      this.valid = Math.min(this.valid, head);
      if (shift) this.shift(lines.length - tail, shift);
    }
    this.widen();
    this.draw();
    this.how.changed();
    this.moved();
  }

  /** Marks move with their lines until the next ones come. @param {number} from @param {number} by */
  shift(from, by) {
    this.marks = new Map([...this.marks].map(([line, mark]) => [line >= from ? line + by : line, mark]));
    if (this.chosen && this.chosen[0] >= from) this.chosen = [this.chosen[0] + by, this.chosen[1] + by];
    else if (this.chosen && this.chosen[1] >= from) this.chosen = [this.chosen[0], this.chosen[1] + by];
  }

  /** Make the sheet as large as its text. */
  widen() {
    const { area } = this;
    area.style.height = `${this.lines.length * this.height + 20}px`;
    if (area.scrollWidth > area.clientWidth + 1) this.wide = area.scrollWidth + 40;
    else if (this.wide && this.box.scrollLeft === 0 && area.clientWidth > this.box.clientWidth) this.wide = this.needed();
    area.style.width = this.wide ? `max(100%, ${this.wide}px)` : "100%";
  }

  /** How wide the text is, roughly and rather too wide. */
  needed() {
    const longest = this.lines.reduce((most, one) => Math.max(most, one.text.length), 0);
    const least = this.box.clientWidth;
    return longest * 16 < least ? 0 : this.wide;
  }

  // -- what is drawn --------------------------------------------------------------------------------------------

  /** The tokens of a line. @param {number} at @returns {Token[]} */
  tokens(at) {
    const { lines } = this;
    for (; this.valid <= at; this.valid++) {
      const line = lines[this.valid], state = this.valid ? lines[this.valid - 1].next : BEGIN;
      if (line.tokens && alike(line.state, state)) continue;
      const { tokens, next } = tokensOf(line.text, state);
      Object.assign(line, { state, tokens, next });
      this.lighted++;
    }
    return lines[at].tokens ?? [];
  }

  /** Draw the lines that are seen, and those near to them. */
  draw() {
    const { lines, height, box } = this;
    const first = Math.max(0, Math.floor(box.scrollTop / height) - MORE);
    const last = Math.min(lines.length - 1, Math.ceil((box.scrollTop + box.clientHeight) / height) + MORE);
    const seen = new Set(lines.slice(first, last + 1));
    for (const [line, found] of this.rows) {
      if (seen.has(line)) continue;
      found.row.hidden = found.number.hidden = true; // and not removed: that would end the typing that one undo takes back
      this.spare.push(found);
      this.rows.delete(line);
    }
    for (let at = first; at <= last; at++) this.row(at);
  }

  /** @param {number} at */
  row(at) {
    const line = this.lines[at], tokens = this.tokens(at);
    let found = this.rows.get(line);
    if (!found) {
      found = this.spare.pop() ?? { at: -1, tokens: null, row: make("div", { class: "line" }), number: make("div", { class: "number" }) };
      found.row.hidden = found.number.hidden = false;
      this.rows.set(line, found);
      if (!found.row.isConnected) {
        this.lit.append(found.row);
        this.gutter.append(found.number);
      }
    }
    if (found.tokens !== tokens) {
      fill(found.row, tokens);
      found.tokens = tokens;
    }
    if (found.at !== at) {
      found.row.style.top = found.number.style.top = `${at * this.height}px`;
      write(found.number, String(at + 1));
      found.at = at;
    }
    const mark = this.marks.get(at) ?? "", chosen = this.chosen !== null && at >= this.chosen[0] && at <= this.chosen[1];
    const look = `${mark ? ` ${mark}` : ""}${chosen ? " chosen" : ""}${at === this.caret ? " caret" : ""}`;
    if (found.row.className !== `line${look}`) { found.row.className = `line${look}`; found.number.className = `number${look}`; }
  }

  /** @param {Map<number, "fault" | "warning">} marks  Line, from 0 -> its mark. */
  mark(marks) {
    this.marks = marks;
    this.draw();
  }

  moved() {
    this.flush();
    if (document.activeElement !== this.area) return;
    const { line } = this;
    if (line === this.caret) return;
    this.caret = line;
    this.draw();
    this.how.moved();
  }

  // -- places ---------------------------------------------------------------------------------------------------

  /** Go to a line and choose it, or choose several. @param {number} first from 0 @param {number} [last] @param {{focus?: boolean}} [how] */
  go(first, last = first, { focus = true } = {}) {
    this.flush();
    const most = this.lines.length - 1;
    [first, last] = [Math.min(Math.max(0, first), most), Math.min(Math.max(0, last), most)];
    this.chosen = [first, last];
    const start = this.startOf(first);
    if (focus) {
      this.area.focus({ preventScroll: true });
      const indent = /^\s*/.exec(this.lines[first].text)?.[0].length ?? 0;
      this.area.setSelectionRange(start + indent, start + indent);
    }
    const top = first * this.height, { box } = this;
    if (top < box.scrollTop || top + this.height > box.scrollTop + box.clientHeight) box.scrollTop = Math.max(0, top - box.clientHeight / 4);
    if (focus) box.scrollLeft = 0;
    this.draw();
  }

  /** Where a character is, in pixels of the window. @param {number} line from 0 @param {number} column */
  point(line, column) {
    const found = this.rows.get(this.lines[line])?.row, box = this.area.getBoundingClientRect();
    const at = { left: box.left, top: box.top + line * this.height, bottom: box.top + (line + 1) * this.height };
    let left = column;
    for (const part of found?.childNodes ?? []) {
      const text = part.firstChild;
      if (!(text instanceof Text)) continue;
      if (left <= text.length) {
        const range = document.createRange();
        range.setStart(text, left);
        range.collapse(true);
        const place = range.getBoundingClientRect();
        return { ...at, left: place.left || at.left };
      }
      left -= text.length;
    }
    return at;
  }
}

/**
 * Write the text of a line as it is, with the same characters as in the text area. Elements are used again, see `draw`.
 * @param {HTMLElement} row @param {Token[]} tokens
 */
function fill(row, tokens) {
  for (const [number, [text, kind]] of tokens.entries()) {
    const element = row.children[number] ?? row.appendChild(document.createElement("span"));
    if (element.firstChild instanceof Text) { if (element.firstChild.data !== text) element.firstChild.data = text; }
    else element.append(text);
    if (element.className !== (kind && `is-${kind}`)) element.className = kind && `is-${kind}`;
  }
  for (let number = tokens.length; number < row.children.length; number++) {
    const { firstChild } = row.children[number];
    if (firstChild instanceof Text && firstChild.data) firstChild.data = "";
  }
}

/** @param {HTMLElement} element @param {string} text */
function write(element, text) {
  if (element.firstChild instanceof Text) element.firstChild.data = text;
  else element.append(text);
}
