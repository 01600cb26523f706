// @ts-check
// The open questions of a run on its own page: the cards of the inbox.

import { root } from "./api.js";
import { byId } from "./elements.js";
import { Card } from "./question_card.js";
import { tell } from "./times.js";

/** @import { RunDocument } from "./modules/types.js" */

const AGAIN = 2000; // milliseconds before cards that could not be had are asked for again

/** What people are asked, as text that is another one whenever a question comes or goes. @param {RunDocument} run */
const asked = (run) => (run.of ?? 0) > run.head ? run.waiting.join("\n") : // the steps that ask may not be there yet
  run.steps.flatMap((step) => (step.status === "waiting" ? (step.asked ?? []).filter((one) => !one.answer && one.kind !== "timer" && one.kind !== "event").map((one) => one.seq) : [])).join();

export class RunQuestions {
  /**
   * @param {string} runId
   * @param {boolean} readOnly
   */
  constructor(runId, readOnly) {
    this.address = `${root}/runs/${encodeURIComponent(runId)}/questions`;
    this.readOnly = readOnly;
    this.box = byId("questions");
    byId("a-cards").after(this.box); // where the answer will be
    /** @type {Map<string, Card>} */
    this.cards = new Map();
    this.asked = "";
    /** @type {() => void} */
    this.changed = () => undefined; // called when cards come or go
    this.shown = false; // whether cards were shown before: later ones come while a person may be typing
    document.addEventListener("keydown", (event) => this.press(event));
    setInterval(() => tell(this.box), 1000);
  }

  /** The run as it is now. @param {RunDocument} run */
  async show(run) {
    const now = asked(run);
    if (now === this.asked) return;
    this.asked = now;
    if (!now && !this.cards.size) return;
    try {
      await this.take();
    } catch {
      this.asked = "";
      setTimeout(() => { void this.show(run); }, AGAIN);
    }
  }

  /** Take the cards that the server has. */
  async take() {
    const answer = await fetch(this.address, { cache: "no-store" });
    if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const found = [...page.querySelectorAll("article.card")];
    for (const card of this.open) if (!found.some((one) => one.id === card.element.id)) void card.gone();
    const more = found.filter((one) => !this.cards.has(one.id));
    if (more.length) for (const [id, card] of this.cards) if (card.over && !card.element.contains(document.activeElement)) { card.element.remove(); this.cards.delete(id); }
    let behind = null; // cards stand in the order of the steps that ask, whenever they came
    for (const one of found.reverse()) {
      const known = this.cards.get(one.id);
      if (known) {
        behind = known.element;
        continue;
      }
      const element = /** @type {HTMLElement} */ (document.adoptNode(one));
      element.querySelector(".from")?.remove(); // the page says it
      this.box.insertBefore(element, behind);
      behind = element;
      const card = new Card(element, { readOnly: this.readOnly, answered: () => this.changed(), left: () => this.go() });
      if (this.shown) card.came = performance.now();
      this.cards.set(element.id, card);
    }
    const count = page.getElementById("open-questions"), shown = byId("open-questions");
    shown.textContent = count?.textContent ?? "";
    shown.hidden = !shown.textContent;
    this.shown = true;
    tell(this.box);
    this.box.hidden = !this.cards.size;
    document.body.classList.toggle("asks", found.length > 0);
    this.changed();
  }

  /** Go to the question behind one that is over. */
  go() {
    const next = this.open[0];
    if (next) next.came = performance.now();
    (next?.element ?? byId("a-rows")).focus();
  }

  /** The run is no more. @param {string} text */
  close(text) { for (const card of this.open) card.close(text); }

  get open() { return [...this.box.children].flatMap((one) => this.cards.get(one.id) ?? []).filter((card) => !card.over); }

  /** The keys of the inbox, for the card that has the focus, else the first one. @param {KeyboardEvent} event */
  press(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || this.readOnly || document.querySelector("dialog[open]") || target.matches("input, textarea, select")) return;
    const within = target.closest(".card");
    const card = this.open.find((one) => one.element === within) ?? (within ? undefined : this.open[0]);
    if (card?.kind !== "approval" || event.repeat) return;
    if (event.key === "a") card.approveByKey();
    else if (event.key === "d") card.ask();
    else if (event.key === "e" && !card.form) card.edit(true);
    else return;
    event.preventDefault();
  }
}
