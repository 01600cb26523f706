// @ts-check
// A card of a question: approved, denied, edited, answered; what became of it.

import { call, object, Problem, root } from "./api.js";
import { ArgumentForm } from "./argument_form.js";
import { make } from "./elements.js";
import { differences } from "./modules/differences.js";
import { visible } from "./modules/texts.js";
import { ResultForm } from "./outcome_form.js";

/** @import { Outcome } from "./outcome_form.js" */

const KINDS = { " ": "same", "+": "add", "-": "cut" };
const LOOK = 700; // milliseconds in which a key is still meant for the card before

/**
 * What a card asks. Arguments are JSON texts.
 * @typedef {{args?: Record<string, string>, schema?: Record<string, any> | null, choices?: string[], outcomes?: Outcome[]}} Source
 */

/** A question, and what is done about it. */
export class Card {
  /**
   * @param {HTMLElement} element
   * @param {{readOnly: boolean, answered: () => unknown, left: (card: Card) => unknown, base?: string}} how  What to do after
   *   an answer, and when a card that has the focus is over; `base`: where the run is, if not below `root`.
   */
  constructor(element, { readOnly, answered, left, base = root }) {
    this.base = base;
    this.element = element;
    this.answered = answered;
    this.left = left;
    this.run = element.dataset.run ?? "";
    this.question = element.dataset.question ?? "";
    this.kind = element.dataset.kind ?? "";
    /** @type {Source} */
    this.source = JSON.parse(element.querySelector("script.source")?.textContent || "{}");
    this.acts = /** @type {HTMLElement} */ (element.querySelector(".acts"));
    this.outcome = /** @type {HTMLElement} */ (element.querySelector(".outcome"));
    /** @type {ArgumentForm | null} */
    this.form = null;
    this.leaving = false;
    this.sending = false;
    this.unreached = false; // the last answer did not reach the server
    this.came = -Infinity; // when it came before a person's eyes without their doing, milliseconds
    if (!readOnly) this.offer();
  }

  /** Approve by a key, unless the card has only just come to where the key acts. */
  approveByKey() {
    if (this.form) void this.approveEdited();
    else if (performance.now() - this.came > LOOK) void this.send({ approve: true });
  }

  get over() {
    return this.element.classList.contains("over");
  }

  /** Whether it asks for a text, whatever that is. */
  get asksText() {
    const { schema, choices } = this.source;
    return this.kind === "input" && !choices?.length && (!schema || schema.type === "string" || Object.keys(schema).length === 0);
  }

  /** Whether there are arguments to edit, or to add. */
  get editable() {
    return Object.keys(this.source.args ?? {}).length > 0 || Object.keys(this.source.schema?.properties ?? {}).length > 0;
  }

  /** Show the buttons that fit the question. */
  offer() {
    const button = (/** @type {string} */ text, /** @type {() => unknown} */ act, kind = "", key = "") =>
      make("button", { type: "button", class: kind, onclick: act, "aria-keyshortcuts": key || null, title: key ? `${text} (${key})` : null }, text);
    /** @type {Node[]} */
    let offered = [];
    if (this.kind === "approval") {
      offered = this.form
        ? [button("Approve as edited", () => this.approveEdited(), "first"), button("Discard the edits", () => this.edit(false))]
        : [button("Approve", () => this.send({ approve: true }), "first", "a"), ...(this.editable ? [button("Edit", () => this.edit(true), "", "e")] : []), button("Deny", () => this.ask(), "risky", "d")];
    } else if (this.kind === "pause") {
      offered = [button("Resume", () => this.go(), "first", "a")];
    } else if (this.source.outcomes?.length) {
      offered = this.source.outcomes.map((one, at) => button(one.label, () => this.become(one), one.dangerous ? "risky" : at ? "" : "first"));
    } else if (this.source.choices?.length) {
      offered = this.source.choices.map((choice, at) => button(choice, () => this.send({ value: choice }), at ? "" : "first"));
    } else if (this.kind === "input" || this.kind === "limit") {
      offered = [Object.keys(this.source.schema?.properties ?? {}).length ? this.objectForm() : this.answerForm()];
    } else {
      offered = [make("a", { href: `${this.base}/runs/${encodeURIComponent(this.run)}` }, "Open the run")];
    }
    this.acts.replaceChildren(...offered);
    this.acts.hidden = false;
  }

  /** A field for each property of the object that is asked for. */
  objectForm() {
    const made = new ArgumentForm({}, this.source.schema ?? {});
    const decline = make("button", { type: "button", class: "risky", onclick: () => this.send({ deny: { reason: "" } }) }, "Decline");
    const form = make("form", { class: "acts told" }, make("div", { class: "result" }, made.element), make("button", { class: "first" }, "Answer"), decline);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const value = made.read();
      if (value) void this.send({}, { value: object(value) });
    });
    return form;
  }

  /** A field for a text, or for JSON where the schema wants something else. */
  answerForm() {
    const schema = this.source.schema;
    const text = !schema || schema.type === "string" || Object.keys(schema).length === 0;
    const input = /** @type {HTMLTextAreaElement} */ (make("textarea", { rows: 2, "aria-label": "Answer", placeholder: text ? "Answer" : "Answer as JSON", class: text ? "" : "json" }));
    const form = /** @type {HTMLFormElement} */ (make("form", { class: "acts reason" }, input, make("button", { class: "first" }, "Answer")));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!text) {
        try { JSON.parse(input.value); } catch { this.say("The answer has to be JSON.", true); return; }
      }
      void this.send({}, { value: text ? JSON.stringify(input.value) : input.value });
    });
    input.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit(); });
    return form;
  }

  /** Turn the arguments into a form, or back. @param {boolean} on */
  edit(on) {
    if (on && !this.editable) return;
    const shown = this.element.querySelector("dl.arguments:not(.form, .beside)");
    if (shown instanceof HTMLElement) shown.hidden = on;
    this.element.querySelector(".changes")?.remove();
    this.form?.element.remove();
    this.form = on ? new ArgumentForm(this.source.args ?? {}, this.source.schema ?? {}) : null;
    if (this.form) {
      const made = this.form;
      const lines = make("div", { class: "diff" });
      const folded = make("details", { class: "changes" }, make("summary", {}, "Difference to what the model asked for"), lines);
      const draw = () => {
        const now = made.read({ focus: false });
        if (!now) return;
        lines.replaceChildren(...differences(readable(this.source.args ?? {}), readable(now)).map(([sign, line]) => make("div", { class: KINDS[sign] }, line)));
      };
      made.element.addEventListener("input", () => { if (/** @type {HTMLDetailsElement} */ (folded).open) draw(); });
      folded.addEventListener("toggle", draw);
      this.acts.before(made.element, folded);
      const first = made.element.querySelector("input, textarea, select");
      if (first instanceof HTMLElement) first.focus();
    }
    this.offer();
  }

  async approveEdited() {
    const args = this.form?.read();
    if (args) await this.send({}, { approve: object({ args: object(args) }) });
  }

  /** Ask why before denying. */
  ask() {
    const reason = /** @type {HTMLInputElement} */ (make("input", { type: "text", class: "reason", "aria-label": "Reason", placeholder: "Reason, which the model sees (may be empty)" }));
    const form = make("form", { class: "acts reason" }, reason, make("button", { class: "risky" }, "Deny"), make("button", { type: "button", onclick: () => this.offer() }, "Back"));
    form.addEventListener("submit", (event) => { event.preventDefault(); void this.send({ deny: { reason: reason.value } }); });
    reason.addEventListener("keydown", (event) => { if (event.key === "Escape") this.offer(); });
    this.acts.replaceChildren(form);
    reason.focus();
  }

  /** Say what became of a call: its result is asked for first, and whether it is really to be made. @param {Outcome} one */
  become(one) {
    if (!one.result && !one.dangerous) { void this.send({ value: one.choice }); return; }
    const result = one.result ? new ResultForm(this.source.schema) : null;
    const back = make("button", { type: "button", onclick: () => { this.offer(); this.element.focus(); } }, "Back");
    const form = make("form", { class: "acts told" }, make("p", { class: "hint" }, one.result ? one.label : `${one.hint} It cannot be undone.`), result?.element,
      make("button", { class: one.dangerous ? "risky" : "first" }, one.dangerous ? one.label : "Continue with this result"), back);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const text = result?.read();
      if (text) void this.send({}, { value: object({ choice: JSON.stringify(one.choice), result: text }) });
      else if (!result) void this.send({ value: one.choice });
    });
    form.addEventListener("keydown", (event) => { if (event.key === "Escape") back.click(); });
    this.acts.replaceChildren(form);
    const first = form.querySelector("dl input, dl textarea, dl select, .result > textarea:not([hidden])");
    (first instanceof HTMLElement ? first : back).focus();
  }

  /** Let a paused run go on. */
  async go() {
    await this.saying(() => call(`/runs/${encodeURIComponent(this.run)}/resume`, { method: "POST", body: {}, base: this.base }), "Resumed.");
  }

  /**
   * Send an answer with the digest of what was shown here.
   * @param {Record<string, unknown>} answer
   * @param {Record<string, string>} [texts]  Parts of the answer as JSON text.
   */
  async send(answer, texts = {}) {
    const body = { question: this.question, digest: this.element.dataset.digest ?? "", ...answer };
    const said = answer.deny ? "Denied." : answer.approve || texts.approve ? "Approved." : "Answered.";
    await this.saying(() => call(`/runs/${encodeURIComponent(this.run)}/answer`, { method: "POST", body, texts, base: this.base }), said);
  }

  /** Do something that ends the question. What was written stays if it fails. @param {() => Promise<unknown>} what @param {string} said */
  async saying(what, said) {
    if (this.sending || this.leaving || this.over) return;
    this.sending = true;
    this.unreached = false;
    this.say("");
    const buttons = this.acts.querySelectorAll("button");
    for (const one of buttons) one.disabled = true;
    try {
      await what();
      this.end(said);
    } catch (error) {
      for (const one of buttons) one.disabled = false;
      this.unreached = !(error instanceof Problem);
      if (error instanceof Problem && error.status === 409) this.end(error.message);
      else this.say(error instanceof Problem ? error.message : "The server does not answer; nothing was changed. Try again.", true);
    } finally {
      this.sending = false;
    }
    void this.answered();
  }

  /** The server answers again. */
  reached() {
    if (this.unreached) this.say("");
    this.unreached = false;
  }

  /** The question is not open any more: its buttons go at once, then it says what became of it. */
  async gone() {
    if (this.leaving || this.sending) return; // an answer from here says itself what became of it
    this.leaving = true;
    for (const one of this.acts.querySelectorAll("button")) one.hidden = true;
    let said = "No longer open.";
    try {
      const found = await call(`/runs/${encodeURIComponent(this.run)}/records?after=${this.element.dataset.seq}`, { base: this.base });
      const answered = found.records.find((/** @type {any} */ one) => one.type === "answered" && one.question === this.question);
      if (answered) said = `Answered${answered.by ? ` by ${answered.by}` : answered.policy ? " by a rule" : " elsewhere"}.`;
    } catch { /* the run may have been deleted */ }
    if (!this.over) this.close(said);
  }

  /** An answer from here ended the question. @param {string} text */
  end(text) {
    const focused = this.element.contains(document.activeElement);
    this.close(text);
    if (focused) this.left(this);
  }

  /**
   * Nothing can be answered any more. The focus stays, so that what a person is about to type goes nowhere else, and what
   * was written can still be copied.
   * @param {string} text
   */
  close(text) {
    this.element.classList.add("over");
    for (const one of this.element.querySelectorAll("input, textarea, select")) {
      if (one instanceof HTMLTextAreaElement || (one instanceof HTMLInputElement && one.type !== "checkbox")) one.readOnly = true;
      else /** @type {HTMLInputElement | HTMLSelectElement} */ (one).disabled = true;
    }
    if (!this.acts.querySelector("input:focus, textarea:focus")) this.acts.hidden = true;
    for (const one of this.acts.querySelectorAll("button")) one.hidden = true;
    this.stopClock();
    this.say(text);
  }

  /** It waits no longer: the time that it waited stays. */
  stopClock() {
    const waits = this.element.querySelector(".waits"), time = waits?.querySelector("time");
    if (!waits?.firstChild || !time) return;
    waits.firstChild.textContent = "waited ";
    time.removeAttribute("data-at");
    this.element.querySelector(".deadline")?.remove();
  }

  /** @param {string} text @param {boolean} [bad] */
  say(text, bad = false) {
    this.outcome.textContent = visible(text);
    this.outcome.classList.toggle("bad", bad);
  }
}

/** JSON in which texts keep their line breaks, for people. @param {Record<string, string>} args */
const readable = (args) => Object.entries(args).map(([name, text]) => `${name}: ${text.startsWith('"') ? JSON.parse(text) : text}`).join("\n");
