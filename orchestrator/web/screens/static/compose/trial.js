// @ts-check
// A run of the text on its own: in a store of the server that is gone with it, with the model that is chosen. Its state,
// its questions and its answer are shown beside the text.

import { call, Problem, root } from "../api.js";
import { ArgumentForm } from "../argument_form.js";
import { make } from "../elements.js";
import { Card } from "../question_card.js";
import { RunOptions } from "../run_options.js";
import { tell } from "../times.js";
import { pretty } from "../modules/texts.js";

/** @typedef {Record<string, any>} Schema */

const BASE = `${root}/try`;
const OFTEN = 400, SELDOM = 1500; // milliseconds between two looks at a run that goes on, or waits
const OVER = new Set(["completed", "failed", "cancelled", "exhausted"]);

export class Trial {
  /** @param {HTMLElement} place @param {{text: () => string, leave: () => void}} how */
  constructor(place, how) {
    this.place = place;
    this.how = how;
    /** Name for the server -> what it is called. @type {Record<string, string>} */
    this.models = {};
    /** Risks up to which a try may approve calls in advance. @type {string[]} */
    this.risks = [];
    this.schema = "";
    /** @type {{need: ArgumentForm, more: ArgumentForm, options: RunOptions} | null} */
    this.form = null;
    this.run = "";
    this.turn = 0;
    this.result = make("div", { class: "result" });
    place.addEventListener("keydown", (event) => { if (event.key === "Escape" && !event.defaultPrevented) this.close(); });
  }

  /** Ask for the input. @param {Schema | null} schema  Of what a run starts with; null: the text is faulty. */
  open(schema) {
    this.place.hidden = false;
    if (!schema) {
      this.head(make("p", { class: "soft" }, "The text has problems. When they are gone it can be tried."));
      this.schema = "";
    } else if (JSON.stringify([schema, this.models]) !== this.schema) this.ask(schema);
    this.place.scrollIntoView({ block: "nearest" });
    const first = this.place.querySelector("input, textarea, select");
    (first instanceof HTMLElement ? first : this.place).focus();
  }

  /** @param {...(Node | string | false)} children */
  head(...children) {
    this.place.replaceChildren(make("div", { class: "head" }, make("h2", {}, "Try it"), make("span", { class: "grow" }),
      make("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: () => this.close() }, "×")), ...children.filter((one) => one !== false), this.result);
  }

  /** @param {Schema} schema */
  ask(schema) {
    this.schema = JSON.stringify([schema, this.models]);
    /** @type {string[]} */
    const first = schema["x-input"]?.length ? schema["x-input"] : schema.required ?? [];
    const names = Object.keys(schema.properties ?? {}), needed = names.filter((name) => first.includes(name) || schema.required?.includes(name));
    /** @param {string[]} some */
    const part = (some) => ({ ...schema, properties: Object.fromEntries(some.map((name) => [name, schema.properties[name]])) });
    const rest = names.filter((name) => !needed.includes(name));
    const options = new RunOptions({ models: { "": "offline (no network, no cost)", ...this.models }, risks: this.risks, limits: { steps: 500, seconds: 120 }, folded: true });
    this.form = { need: new ArgumentForm({}, part(needed)), more: new ArgumentForm({}, part(rest)), options };
    const form = make("form", {}, this.form.need.element,
      rest.length ? make("details", {}, make("summary", {}, "Further fields of the state"), this.form.more.element) : "",
      options.element,
      make("div", { class: "acts" }, make("button", { class: "first" }, "Run"), make("span", { class: "fault", role: "alert" })));
    form.addEventListener("submit", (event) => { event.preventDefault(); void this.start(); });
    this.head(form);
  }

  async start() {
    const need = this.form?.need.read(), more = this.form?.more.read();
    if (!this.form || !need || !more) return;
    const { options } = this.form, chosen = options.read();
    if (!chosen) return;
    const turn = ++this.turn;
    const button = this.place.querySelector("form button.first"), fault = /** @type {HTMLElement} */ (this.place.querySelector("form .acts .fault"));
    if (button instanceof HTMLButtonElement) button.disabled = true;
    fault.textContent = "";
    this.result.replaceChildren(make("p", { class: "soft" }, "Starting …"));
    try {
      const fields = Object.entries({ ...more, ...need });
      const input = fields.length ? `{${fields.map(([name, text]) => `${JSON.stringify(name)}:${text}`).join(",")}}` : "null"; // an empty object may be a value
      const run = await call("/graphs/try", { method: "POST", body: { ...chosen, text: this.how.text(), format: "yaml" }, texts: { input } });
      if (turn !== this.turn) return;
      this.run = run.run_id;
      this.begin(run);
      void this.follow(turn);
    } catch (error) {
      this.result.replaceChildren();
      fault.textContent = options.blame(error, [this.form.need, this.form.more]);
    } finally {
      if (button instanceof HTMLButtonElement) button.disabled = false;
    }
  }

  /** @param {any} run */
  begin(run) {
    this.cards = make("div", { class: "cards" });
    /** @type {Map<string, Card>} */
    this.asked = new Map();
    this.said = make("div", { class: "said", "aria-live": "polite" });
    this.result.replaceChildren(this.said, this.cards);
    this.show(run);
  }

  /** Look at the run until it is over. @param {number} turn */
  async follow(turn) {
    let waits = false;
    while (turn === this.turn && !this.place.hidden) {
      await new Promise((done) => setTimeout(done, waits ? SELDOM : OFTEN));
      if (turn !== this.turn || document.visibilityState !== "visible") continue;
      try {
        const run = await call(`/runs/${encodeURIComponent(this.run)}`, { base: BASE });
        if (turn !== this.turn) return;
        this.show(run);
        if (run.waiting.length || this.asked?.size) await this.question();
        if (OVER.has(run.status)) return;
        waits = run.status === "paused";
      } catch (error) {
        if (!(error instanceof Problem)) continue;
        this.said?.replaceChildren(make("p", { class: "fault" }, error.message));
        return;
      }
    }
  }

  /** @param {any} run */
  show(run) {
    const shown = JSON.stringify([run.status, run.steps, run.output, run.error]);
    if (!this.said || this.said.dataset.of === shown) return;
    this.said.dataset.of = shown;
    const link = make("a", { href: `${BASE}/runs/${encodeURIComponent(run.run_id)}`, onclick: () => this.how.leave() }, "Open the run");
    this.said.replaceChildren(
      make("p", { class: "status" }, make("span", { class: `pill ${run.status}` }, run.status), make("span", { class: "soft" }, `${run.steps} ${run.steps === 1 ? "step" : "steps"}`), link),
      run.error ? make("p", { class: "fault data" }, String(run.error.message ?? JSON.stringify(run.error))) : "",
      run.status === "completed" ? make("pre", { class: "data answer", tabindex: "0", "aria-label": "Output" }, pretty(run.output ?? "")) : "");
  }

  /** Show the open questions of the run, as its page does. */
  async question() {
    const answer = await fetch(`${BASE}/runs/${encodeURIComponent(this.run)}/questions`, { cache: "no-store" });
    if (!answer.ok || !this.cards || !this.asked) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const found = [...page.querySelectorAll("article.card")];
    for (const [id, card] of this.asked) if (!card.over && !found.some((one) => one.id === id)) void card.gone();
    for (const one of found) {
      if (this.asked.has(one.id)) continue;
      const element = /** @type {HTMLElement} */ (document.adoptNode(one));
      element.querySelector(".from")?.remove();
      for (const [id, card] of this.asked) if (card.over) { card.element.remove(); this.asked.delete(id); }
      this.cards.append(element);
      this.asked.set(element.id, new Card(element, { readOnly: false, base: BASE, answered: () => undefined, left: () => this.place.focus() }));
      element.scrollIntoView({ block: "nearest" });
    }
    tell(this.cards);
  }

  close() {
    this.turn++;
    this.place.hidden = true;
    document.getElementById("try")?.focus();
  }
}
