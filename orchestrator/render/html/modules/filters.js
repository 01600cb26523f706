// What the list of steps shows: search, chips, kind of node, order.
import { byId, make } from "./elements.js";
import { everything, ORDERS, TRAITS } from "./choice.js";
import { number } from "./texts.js";

/** @import { Choice, Order, Trait } from "./choice.js" */
/** @import { Outline } from "./outline.js" */

/** @type {Record<Order, string>} */
const ORDER_NAMES = { order: "as they ran", duration: "longest first", tokens: "most tokens", cost: "most costly" };

export class Filters {
  /**
   * @param {string} prefix
   * @param {Outline} outline
   * @param {(choice: Choice) => void} choose
   */
  constructor(prefix, outline, choose) {
    this.outline = outline;
    this.choose = choose;
    /** @type {Map<Trait, HTMLElement>} */
    this.made = new Map();
    /** @type {string | null} */
    this.kinds = null;
    this.search = /** @type {HTMLInputElement} */ (byId(prefix + "-search"));
    this.chips = byId(prefix + "-chips");
    this.found = byId(prefix + "-found");
    this.order = /** @type {HTMLSelectElement} */ (byId(prefix + "-order"));
    this.kind = /** @type {HTMLSelectElement} */ (byId(prefix + "-kind"));
    this.order.append(...ORDERS.map((order) => make("option", { value: order }, ORDER_NAMES[order])));
    this.search.addEventListener("input", () => this.change({ text: this.search.value }));
    this.order.addEventListener("change", () => this.change({ order: /** @type {Order} */ (this.order.value) }));
    this.kind.addEventListener("change", () => this.change({ kind: this.kind.value }));
    this.grow();
  }

  /** @param {Partial<Choice>} part */
  change(part) { this.choose({ ...this.outline.choice, ...part }); }

  /** @param {Trait} trait */
  toggle(trait) {
    const { only } = this.outline.choice;
    this.change({ only: only.includes(trait) ? only.filter((one) => one !== trait) : [...only, trait] });
  }

  clear() { this.choose(everything()); }

  /** The button of a trait. @param {Trait} trait */
  chip(trait) {
    let found = this.made.get(trait);
    if (!found) {
      found = make("button", { type: "button", class: "chip " + trait, "data-trait": trait, "aria-pressed": "false", onclick: () => this.toggle(trait) }, trait, make("span", { class: "many" }));
      this.made.set(trait, found);
    }
    return found;
  }

  /** The run may have steps of other kinds, and with other traits, than before. */
  grow() {
    const { outline } = this, { only } = outline.choice;
    const chips = TRAITS.map((trait) => ({ trait, count: outline.count(trait) })).filter(({ trait, count }) => count || only.includes(trait));
    for (const { trait, count } of chips) this.chip(trait).lastElementChild?.replaceChildren(" " + number(count));
    const offered = chips.map(({ trait }) => this.chip(trait));
    if (offered.length !== this.chips.children.length || offered.some((chip, at) => chip !== this.chips.children[at])) this.chips.replaceChildren(...offered);
    const kinds = outline.kinds();
    if (kinds.join() !== this.kinds) this.kind.replaceChildren(make("option", { value: "" }, "any kind"), ...kinds.map((kind) => make("option", { value: kind }, kind)));
    this.kinds = kinds.join();
    this.show(outline.line.length);
  }

  /** @param {number} count  How many steps are shown. */
  show(count) {
    const { choice, narrowed, data } = this.outline;
    if (this.search.value !== choice.text) this.search.value = choice.text;
    this.order.value = choice.order;
    this.kind.value = choice.kind;
    for (const chip of /** @type {NodeListOf<HTMLElement>} */ (this.chips.querySelectorAll("[data-trait]")))
      chip.setAttribute("aria-pressed", String(choice.only.some((trait) => trait === chip.dataset.trait)));
    this.found.textContent = narrowed ? number(count) + " of " + number(data.steps.length) + " steps" : "";
  }
}
