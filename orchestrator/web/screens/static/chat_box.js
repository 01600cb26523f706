// @ts-check
// The box below the transcript in which a person writes the next message of a chat: the answer to the one question that
// waits for a text. Other questions are answered on their cards.

import { make } from "./elements.js";
import { byId } from "./modules/elements.js";
import { visible } from "./modules/texts.js";

/** @import { Transcript } from "./modules/transcript.js" */
/** @import { RunDocument } from "./modules/types.js" */
/** @import { Card } from "./question_card.js" */
/** @import { RunQuestions } from "./run_questions.js" */

const TALLEST = 180; // pixels of what is written, before it scrolls
const SOON = 5000; // milliseconds after the last answer within which the run goes on
/** @type {Record<string, string>} */
const ENDS = { completed: "This chat has ended.", failed: "This chat failed: Retry goes on from there.", cancelled: "This chat was cancelled.", exhausted: "A limit of this chat is spent." };

export class ChatBox {
  /** @param {Transcript} talk @param {RunQuestions} questions @param {boolean} readOnly */
  constructor(talk, questions, readOnly) {
    this.talk = talk;
    this.questions = questions;
    this.readOnly = readOnly;
    this.sending = false;
    this.asking = 0; // how many questions were open
    this.answered = -SOON; // when the last one was answered
    /** @type {RunDocument | null} */
    this.run = null;
    this.text = /** @type {HTMLTextAreaElement} */ (make("textarea", { rows: 1, "aria-label": "Message", placeholder: "Write a message", "aria-describedby": "say-state" }));
    this.button = /** @type {HTMLButtonElement} */ (make("button", { class: "first", title: "Send (Enter)" }, "Send"));
    this.form = /** @type {HTMLFormElement} */ (make("form", { class: "say", hidden: true }, this.text, this.button));
    this.state = make("p", { class: "say-state", id: "say-state", role: "status", hidden: true });
    byId("a-talk").after(this.state, this.form);
    this.form.addEventListener("submit", (event) => { event.preventDefault(); void this.send(); });
    this.text.addEventListener("input", () => this.grow());
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.text.blur();
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.form.requestSubmit();
    });
    talk.looked = questions.changed = () => { this.show(this.run); };
  }

  /** The card of the one question that waits for a text. @returns {Card | null} */
  get card() {
    const open = this.questions.open, [card] = open;
    return open.length === 1 && card.asksText ? card : null;
  }

  /** The run as it is now. @param {RunDocument | null} run */
  show(run) {
    this.run = run;
    const chats = run !== null && this.talk.shown && Object.values(run.kinds).includes("ask"), { card } = this, open = this.questions.open.length;
    const ended = run !== null && run.status in ENDS, writes = chats && !ended && !this.readOnly && (card !== null || !open);
    if (this.asking && !open) {
      this.answered = performance.now();
      setTimeout(() => this.show(this.run), SOON);
    }
    this.asking = open;
    document.body.classList.toggle("chats", writes && card !== null);
    this.form.hidden = !writes;
    this.button.disabled = this.sending || card === null;
    this.state.hidden = !chats;
    if (run && chats && !this.sending) this.say(card ? "" : open > 1 ? "Several questions are open: answer them above." : open ? "A question is open: answer it above." : this.words(run));
  }

  /** What a run is at that asks nothing. @param {RunDocument} run */
  words(run) {
    if (run.status in ENDS) return ENDS[run.status];
    if (run.status === "running" || (run.status === "paused" && performance.now() < this.answered + SOON)) return "At work on the reply …";
    return run.status === "interrupted" ? "No process drives this chat. Resume continues it." : "This chat is paused. Resume continues it.";
  }

  /** @param {string} text @param {boolean} [bad] */
  say(text, bad = false) {
    if (this.state.textContent !== visible(text)) this.state.textContent = visible(text);
    this.state.classList.toggle("bad", bad);
  }

  grow() {
    this.text.style.height = "auto";
    this.text.style.height = `${Math.min(TALLEST, this.text.scrollHeight + 2)}px`;
  }

  /** What was written stays if it cannot be sent. */
  async send() {
    const { card } = this, text = this.text.value;
    if (!card || this.sending || !text.trim()) return;
    this.sending = this.button.disabled = true;
    await card.send({}, { value: JSON.stringify(text) });
    this.sending = false;
    if (card.over) {
      this.text.value = "";
      this.grow();
    }
    this.show(this.run);
    if (!card.over || card.outcome.classList.contains("bad")) this.say(card.outcome.textContent ?? "", true);
    this.talk.toEnd();
    this.text.focus();
  }
}
