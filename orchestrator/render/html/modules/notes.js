// Notes and scores that people wrote about a run and its steps, and the form that writes one.
import { make } from "./elements.js";
import { number, visible } from "./texts.js";

/** @import { Children } from "./elements.js" */
/** @import { NoteData, NoteSource } from "./types.js" */

export class Notes {
  /** @param {NoteSource | null} source  null: they cannot be listed. @param {() => void} changed  Others are shown now. */
  constructor(source, changed) {
    this.source = source;
    this.changed = changed;
    /** @type {NoteData[]} */
    this.all = [];
    /** Forms by what they are about: what was written stays while the panel shows something else. @type {Map<string, HTMLElement>} */
    this.forms = new Map();
    void this.load();
  }

  async load() {
    try { this.all = (await this.source?.list()) ?? []; } catch { return; } // not allowed, or the run is no more
    if (this.all.length) this.changed();
  }

  /** @param {number | null} step  Number of the record that ended it; null: the whole run. */
  of(step) { return this.all.filter((note) => (note.step ?? null) === step); }

  /**
   * What was written about a step or the run, and the form for more.
   * @param {number | null} step
   * @returns {Children}
   */
  panel(step) {
    const found = this.of(step), form = this.source?.write ? this.form(step) : null;
    return found.length || form ? make("section", { class: "notes", "aria-label": "Notes" }, make("h3", {}, "Notes"), found.map((note) => this.element(note)), form) : null;
  }

  /** @param {NoteData} note */
  element(note) {
    const score = note.score === undefined || note.score === null ? null : make("span", { class: "score" }, note.score.toLocaleString("en", { maximumFractionDigits: 6 }));
    const said = make("span", { class: "bad-text", role: "status" }), remove = this.source?.remove;
    const drop = remove ? make("button", { type: "button", class: "link", onclick: (/** @type {Event} */ event) => this.drop(/** @type {HTMLElement} */ (event.currentTarget), note, said) }, "Delete") : null;
    return make("article", { class: "note-card" },
      make("div", { class: "by" }, score, note.name ? make("b", { class: "data" }, visible(note.name)) : null, make("span", { class: "data" }, visible(note.by ?? "")), make("time", {}, new Date(note.at * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" })), drop, said),
      note.text ? make("div", { class: "text data" }, visible(note.text)) : null);
  }

  /** Delete a note, when the button is pressed twice. @param {HTMLElement} button @param {NoteData} note @param {HTMLElement} said */
  async drop(button, note, said) {
    if (button.textContent === "Delete") { button.textContent = "Delete it?"; return; }
    try {
      await this.source?.remove?.(note.id);
      this.all = this.all.filter((one) => one !== note);
      this.changed();
    } catch (error) { said.textContent = visible(error instanceof Error ? error.message : error); }
  }

  /** @param {number | null} step */
  form(step) {
    const key = String(step), known = this.forms.get(key);
    if (known) return known;
    const text = /** @type {HTMLTextAreaElement} */ (make("textarea", { rows: 2, maxlength: 4000, placeholder: step === null ? "A note on the run" : "A note on the step", "aria-label": "Note" }));
    const score = /** @type {HTMLInputElement} */ (make("input", { type: "text", inputmode: "decimal", placeholder: "score", "aria-label": "Score" }));
    const name = /** @type {HTMLInputElement} */ (make("input", { type: "text", maxlength: 100, placeholder: "what it measures", "aria-label": "What the score measures" }));
    const said = make("span", { class: "bad-text", role: "status" });
    const form = make("form", { class: "write-note", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); void send(); } }, text,
      make("div", { class: "choices" }, score, name, make("button", { type: "submit" }, "Write the note")), said);
    const send = async () => {
      const value = score.value.trim(), given = value === "" ? null : Number(value);
      if (given !== null && !Number.isFinite(given)) { said.textContent = "The score is not a number."; return; }
      if (!text.value.trim() && given === null) { said.textContent = "Write a text, or give a score."; return; }
      const button = /** @type {HTMLButtonElement} */ (form.querySelector("button"));
      button.disabled = true;
      said.textContent = "";
      try {
        const note = await this.source?.write?.({ step, text: text.value, score: given, name: name.value.trim() });
        if (note) this.all = [...this.all, note];
        for (const field of [text, score, name]) field.value = "";
        this.changed();
      } catch (error) { said.textContent = visible(error instanceof Error ? error.message : error); }
      button.disabled = false;
    };
    this.forms.set(key, form);
    return form;
  }

  /** How many there are; null: none. */
  get count() { return this.all.length ? number(this.all.length) : null; }
}
