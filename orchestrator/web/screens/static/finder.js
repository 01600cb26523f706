// @ts-check
// Ctrl-K: one field that finds screens, runs, and what can be done here.

import { call, root } from "./api.js";
import { byId, make } from "./elements.js";
import { visible } from "./modules/texts.js";

/** @typedef {{name: string, about?: string, act: () => void}} Entry */

const PAUSE = 150; // milliseconds without a key before the server is asked
const MOST = 8; // runs shown

/** @type {() => Entry[]} */
let ofScreen = () => [];

/** Say what can be done on this screen. @param {() => Entry[]} entries asked each time the finder opens */
export function offer(entries) {
  ofScreen = entries;
}

/** @param {string} path */
const go = (path) => () => location.assign(root + path);

/** @type {Entry[]} */
const SCREENS = [
  { name: "Runs", about: "go to", act: go("/runs") },
  { name: "Inbox", about: "go to", act: go("/inbox") },
  { name: "Compose", about: "go to", act: go("/compose") },
  { name: "Workers", about: "go to", act: go("/workers") },
  { name: "Graphs", about: "go to", act: go("/graphs") },
  { name: "Costs", about: "go to", act: go("/costs") },
  { name: "Evaluations", about: "go to", act: go("/evaluations") },
  { name: "Parked runs", about: "go to", act: go("/workers#parked") },
  { name: "Runs that failed", about: "go to", act: go("/runs?status=failed") },
  { name: "Runs that wait for an answer", about: "go to", act: go("/runs?waiting=true") },
  { name: "Runs under way", about: "go to", act: go("/runs?status=running") },
];

/** The buttons at the top of the screen. @returns {Entry[]} */
function buttons() {
  const found = /** @type {NodeListOf<HTMLButtonElement>} */ (document.querySelectorAll(".actions button, .bulk button, .views button, .heading button, #notify"));
  return [...found].filter((one) => !one.disabled && one.offsetParent !== null)
    .map((one) => ({ name: one.textContent?.trim() || one.getAttribute("aria-label") || "", about: one.title || "here", act: () => one.click() }));
}

class Finder {
  constructor() {
    this.back = document.activeElement;
    this.fixed = [...ofScreen(), ...buttons(), ...SCREENS];
    /** @type {Entry[]} */
    this.shown = [];
    this.at = 0;
    this.turn = 0;
    this.timer = 0;
    this.input = /** @type {HTMLInputElement} */ (make("input", {
      type: "text", placeholder: "Find a run, a screen or an action", "aria-label": "Find", role: "combobox", autocomplete: "off", spellcheck: "false",
      "aria-expanded": "true", "aria-controls": "found", "aria-autocomplete": "list",
    }));
    this.list = make("ul", { id: "found", role: "listbox", "aria-label": "Found" });
    this.dialog = /** @type {HTMLDialogElement} */ (make("dialog", { class: "finder", "aria-label": "Find" }, this.input, this.list));
    this.input.addEventListener("input", () => this.find());
    this.input.addEventListener("keydown", (event) => this.press(event));
    this.dialog.addEventListener("click", (event) => { if (event.target === this.dialog) this.dialog.close(); });
    this.dialog.addEventListener("close", () => {
      clearTimeout(this.timer);
      this.turn++;
      this.dialog.remove();
    });
    document.body.append(this.dialog);
    this.dialog.showModal();
    this.find();
  }

  /** Show what fits the text: at once what is known here, then runs of the server. */
  find() {
    const text = this.input.value.trim(), words = text.toLowerCase().split(/\s+/).filter(Boolean), turn = ++this.turn;
    const here = this.fixed.filter((one) => words.every((word) => `${one.name} ${one.about}`.toLowerCase().includes(word)));
    clearTimeout(this.timer);
    this.show(here);
    if (!text) return;
    this.timer = window.setTimeout(async () => {
      /** @type {any[]} */
      let runs = [];
      try {
        runs = (await call(`/runs?limit=${MOST}&q=${encodeURIComponent(text)}`)).runs;
      } catch { /* the line at the top says that the server does not answer */ }
      if (turn !== this.turn) return;
      const found = runs.map((one) => ({ name: one.input || one.run_id, about: `${one.graph} · ${one.status} · ${one.run_id}`, act: go(`/runs/${encodeURIComponent(one.run_id)}`) }));
      const named = /\s/.test(text) || runs.some((one) => one.run_id === text) ? [] : [{ name: `The run ${text}`, about: "go to", act: go(`/runs/${encodeURIComponent(text)}`) }];
      const first = /[\d_-]/.test(text) ? named : []; // as ids have them
      this.show([...here, ...first, ...found, { name: `Search all runs for “${text}”`, about: "go to", act: go(`/runs?q=${encodeURIComponent(text)}`) }, ...(first.length ? [] : named)]);
    }, PAUSE);
  }

  /** @param {Entry[]} entries */
  show(entries) {
    this.shown = entries;
    this.list.replaceChildren(...entries.map((one, number) => make("li", {
      id: `found-${number}`, role: "option", onclick: () => this.take(number), onpointermove: () => { if (this.at !== number) this.mark(number); },
    }, make("span", { class: "data" }, visible(one.name)), make("small", { class: "data" }, visible(one.about ?? "")))));
    if (!entries.length) this.list.append(make("li", { class: "none", role: "option", "aria-disabled": "true" }, "Nothing here is called that. Searching the runs …"));
    this.mark(0);
  }

  /** @param {number} number */
  mark(number) {
    this.at = Math.max(0, Math.min(this.shown.length - 1, number));
    [...this.list.children].forEach((one, at) => one.setAttribute("aria-selected", String(at === this.at && this.shown.length > 0)));
    if (this.shown.length) this.input.setAttribute("aria-activedescendant", `found-${this.at}`);
    else this.input.removeAttribute("aria-activedescendant");
    this.list.children[this.at]?.scrollIntoView({ block: "nearest" });
  }

  /** @param {number} number */
  take(number) {
    const entry = this.shown[number];
    if (!entry) return;
    this.dialog.close();
    if (this.back instanceof HTMLElement) this.back.focus();
    entry.act();
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    const last = this.shown.length - 1;
    const moves = /** @type {Record<string, number>} */ ({ ArrowDown: this.at === last ? 0 : this.at + 1, ArrowUp: this.at === 0 ? last : this.at - 1 });
    if (event.key in moves) this.mark(moves[event.key]);
    else if (event.key === "Enter" && !event.isComposing) this.take(this.at);
    else return;
    event.preventDefault();
  }
}

function open() {
  if (!document.querySelector("dialog[open]")) new Finder();
}

document.addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
  event.preventDefault();
  open();
});
byId("finder-open").addEventListener("click", open);
