// @ts-check
// The list of what can stand at the caret: a listbox that the text area controls.

import { make } from "../elements.js";
import { meant } from "./meant.js";

/** @import { Editor } from "./editor.js" */
/** @import { Choice, Known } from "./meant.js" */

const MOST = 60; // choices that are listed

export class Completion {
  /** @param {Editor} editor @param {() => Known} known */
  constructor(editor, known) {
    this.editor = editor;
    this.known = known;
    this.list = make("ul", { id: "completion", class: "completion", role: "listbox", "aria-label": "Completions", hidden: true });
    document.body.append(this.list);
    /** @type {Choice[]} */
    this.choices = [];
    this.at = 0;
    this.from = 0; // the character at which the word begins
    this.inserting = false;
    const { area, box } = editor;
    area.setAttribute("aria-controls", "completion");
    area.addEventListener("keydown", (event) => this.press(event), true);
    area.addEventListener("input", (event) => this.typed(/** @type {InputEvent} */ (event)));
    area.addEventListener("blur", () => this.close());
    area.addEventListener("pointerdown", () => this.close());
    box.addEventListener("scroll", () => this.close());
    this.list.addEventListener("pointerdown", (event) => {
      event.preventDefault(); // the text area keeps the focus
      const row = /** @type {Element} */ (event.target).closest("li");
      if (row) { this.at = [...this.list.children].indexOf(row); this.take(); }
    });
  }

  get open() { return !this.list.hidden; }

  /** @param {KeyboardEvent} event */
  press(event) {
    if (event.isComposing) return;
    if ((event.ctrlKey || event.metaKey) && (event.key === " " || event.code === "Space")) {
      event.preventDefault();
      this.show(true);
      return;
    }
    if (!this.open || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 };
    if (event.key in moves) this.move(moves[/** @type {keyof typeof moves} */ (event.key)]);
    else if (event.key === "Enter" || (event.key === "Tab" && !event.shiftKey)) this.take();
    else if (event.key === "Escape") this.close();
    else {
      if (["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) this.close();
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {InputEvent} event */
  typed(event) {
    if (this.inserting) return;
    if (event.inputType === "insertText" && /^[\w-]$/.test(event.data ?? "")) this.show(false);
    else if (this.open && (event.inputType === "deleteContentBackward")) this.show(true);
    else this.close();
  }

  /** @param {boolean} asked  Whether the person wants the list, or only typed. */
  show(asked) {
    this.editor.flush();
    const { area } = this.editor, at = area.selectionStart;
    if (at !== area.selectionEnd) return this.close();
    const line = this.editor.lineOf(at), start = this.editor.startOf(line), lines = this.editor.lines.map((one) => one.text);
    const found = meant(lines, line, at - start, this.known());
    const word = found ? lines[line].slice(found.from, at - start) : "";
    if (!found || (!asked && (!found.sure || (found.choices.length === 1 && found.choices[0].text === word)))) return this.close();
    this.choices = found.choices.slice(0, MOST);
    this.from = start + found.from;
    this.list.replaceChildren(...this.choices.map((one, number) =>
      make("li", { role: "option", id: `completion-${number}`, "aria-selected": "false" }, make("b", {}, one.text), one.about && make("span", {}, one.about))));
    this.list.hidden = false;
    this.place(line, found.from);
    this.at = 0;
    this.move(0);
  }

  /** @param {number} line @param {number} column */
  place(line, column) {
    const point = this.editor.point(line, column), { list } = this;
    const { offsetWidth: width, offsetHeight: height } = list;
    const below = point.bottom + height < innerHeight || point.top < height;
    list.style.left = `${Math.max(4, Math.min(point.left, innerWidth - width - 8))}px`;
    list.style.top = `${below ? point.bottom + 2 : point.top - height - 2}px`;
  }

  /** @param {number} by */
  move(by) {
    const rows = [...this.list.children];
    rows[this.at]?.setAttribute("aria-selected", "false");
    this.at = Math.min(rows.length - 1, Math.max(0, Math.abs(by) === 1 ? (this.at + by + rows.length) % rows.length : this.at + by));
    const row = rows[this.at];
    row.setAttribute("aria-selected", "true");
    row.scrollIntoView({ block: "nearest" });
    this.editor.area.setAttribute("aria-activedescendant", row.id);
  }

  take() {
    const choice = this.choices[this.at], { area } = this.editor;
    this.close();
    if (!choice) return;
    this.inserting = true;
    this.editor.replace({ from: this.from, to: area.selectionStart, with: choice.put ?? choice.text });
    this.inserting = false;
    if (choice.put && /[:\s]$/.test(choice.put)) this.show(false);
  }

  close() {
    if (this.list.hidden) return;
    this.list.hidden = true;
    this.editor.area.removeAttribute("aria-activedescendant");
  }
}
