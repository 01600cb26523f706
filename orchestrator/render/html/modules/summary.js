// The top of a run: what was asked, what came of it, and what it used of its limits.
import { byId, make, present } from "./elements.js";
import { questionElement } from "./question.js";
import { lasting, money, number, pretty, spent, tokens, visible } from "./texts.js";
import { placeElement } from "./traceback.js";

/** @import { RunData } from "./run_data.js" */
/** @import { Asked, RunDocument, Trace } from "./types.js" */
/** @typedef {{ name: string, kind: string, text: string, asked?: Asked, step?: number, trace?: Trace | null }} Card */

const STATUSES = ["running", "paused", "interrupted", "completed", "failed", "cancelled", "exhausted"];

export class Summary {
  /**
   * @param {string} prefix
   * @param {(index: number) => void} choose  A reader wants to see a step.
   */
  constructor(prefix, choose) {
    this.prefix = prefix;
    this.choose = choose;
    /** Names of cards that show all of their text. @type {Set<string>} */
    this.unfolded = new Set();
    /** The cards that are shown, as text. */
    this.cards = "";
    /** @type {Map<string, HTMLElement>} */
    this.facts = new Map();
  }

  /** @param {RunData} data @param {string | null} notes  How many notes there are. */
  show(data, notes = null) {
    const { run } = data;
    const pill = byId(this.prefix + "-status");
    write(pill, shownStatus(run));
    pill.className = "pill " + (shownStatus(run) === "diverged" ? "exhausted" : STATUSES.includes(run.status) ? run.status : "");
    write(byId(this.prefix + "-why"), visible(run.error ? run.why.replace(": " + run.error, "") : run.why) + (run.driver ? ". Driven by " + visible(run.driver) : ""));
    this.showFacts(data, notes);
    const cards = [question(run), ...outcomes(data)].filter((card) => card !== null);
    const said = JSON.stringify(cards);
    if (said !== this.cards) byId(this.prefix + "-cards").replaceChildren(...cards.map((card) => this.card(card)));
    this.cards = said;
  }

  /** @param {RunData} data @param {string | null} notes */
  showFacts(data, notes) {
    const found = facts(data, notes), box = byId(this.prefix + "-facts");
    const rows = found.map(([name, value, title]) => {
      let row = this.facts.get(name);
      if (!row) this.facts.set(name, (row = make("div", {}, make("dt", {}, name), make("dd"))));
      write(/** @type {HTMLElement} */ (row.lastElementChild), value);
      if (title && row.title !== title) row.title = title;
      return row;
    });
    if (rows.length !== box.children.length || rows.some((row, at) => row !== box.children[at])) box.replaceChildren(...rows);
  }

  /** @param {Card} card */
  card({ name, kind, text, asked, step, trace }) {
    const go = step === undefined ? null : make("button", { type: "button", class: "link", onclick: () => this.choose(step) }, "Show the step");
    // Of an open question everything is shown, each part in its place: a text of several lines would pass for others.
    const [body, more] = asked ? [[make("div", { class: "question" }, questionElement(asked)), text], null] : this.folded(name, text);
    return make("section", { class: "card " + kind, "aria-label": name }, make("div", { class: "label" }, make("h2", {}, name), make("span", { class: "links" }, present([go, more]))), body, placeElement(trace));
  }

  /** A text of which the first lines are shown, and the button that shows all. @param {string} name @param {string} text */
  folded(name, text) {
    const body = make("div", { class: "text clamp data" }, visible(text));
    const more = make("button", { type: "button", class: "link more", hidden: true, "aria-expanded": "false" }, "More");
    const fold = (/** @type {boolean} */ open) => {
      body.classList.toggle("clamp", !open);
      if (open) { this.unfolded.add(name); body.tabIndex = 0; } else { this.unfolded.delete(name); body.removeAttribute("tabindex"); }
      more.textContent = open ? "Less" : "More";
      more.setAttribute("aria-expanded", String(open));
    };
    more.addEventListener("click", () => fold(body.classList.contains("clamp")));
    new ResizeObserver(() => { more.hidden = body.classList.contains("clamp") && body.scrollHeight <= body.clientHeight + 1; }).observe(body);
    if (this.unfolded.has(name)) fold(true);
    return [body, more];
  }
}

/** @param {HTMLElement} element @param {string} text */
function write(element, text) { if (element.textContent !== text) element.textContent = text; }

/** @param {RunDocument} run @returns {Card | null} */
function question(run) {
  const text = run.question === null || run.question === undefined ? "" : short(run.question);
  return text ? { name: "Question", kind: "asked", text } : null; // a chat may begin without one
}

/** The status in words: a replay that ended where it diverged was not cancelled. @param {RunData["run"]} run */
const shownStatus = (run) => (run.ended_diverged && run.status === "cancelled" ? "diverged" : run.status);

/** What came of the run: open questions, an error, an answer. @param {RunData} data @returns {Card[]} */
function outcomes(data) {
  const { run } = data;
  const open = data.steps.flatMap((step, index) => (step.asked ?? []).filter((asked) => !asked.answer && step.status === "waiting").map((asked) => ({ asked, index })));
  if (open.length) {
    const { asked, index } = open[0], more = open.length > 1 ? "… and " + number(open.length - 1) + " more" : "";
    return [{ name: asked.kind === "timer" || asked.kind === "event" ? "Waits" : "Waits for an answer", kind: "open", text: more, asked, step: index }];
  }
  /** @type {Card[]} */
  const found = run.error ? [{ name: "Error", kind: "failed", text: run.error, step: data.failed() ?? undefined, trace: run.trace }] : [];
  if (run.output !== null && run.output !== undefined) found.push({ name: "Answer", kind: "answer", text: short(run.output) });
  return found.length ? found : [{ name: "No answer", kind: "none", text: shownStatus(run) === "diverged" ? "The replay ended where live calls would follow." : "The run is " + run.status + "." }];
}

/** A text as it is; of one field its value. @param {any} value @returns {string} */
function short(value) {
  if (value && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length === 1) return short(Object.values(value)[0]);
  if (Array.isArray(value) && value.length && value.every((one) => typeof one === "string")) return value.join("\n");
  return pretty(value);
}

/** Amounts, each against its limit if there is one. @param {RunData} data @param {string | null} notes @returns {[string, string, string?][]} */
function facts(data, notes) {
  const { run } = data, { limits, usage } = run;
  const of = (/** @type {string} */ shown, /** @type {string} */ name, /** @type {(value: number) => string} */ say = number) =>
    (limits[name] === undefined ? shown : shown + " / " + say(limits[name]));
  const began = run.forked ?? 0, span = Math.max(0, data.span - began) / 1000; // what a fork inherited was before it
  const waited = run.idle.reduce((sum, [from, to]) => sum + Math.max(0, to - Math.max(from, began)), 0) / 1000;
  /** @type {[string, string, string?][]} */
  const found = [
    ["steps", of(number(run.counted), "steps"), "steps that ended"], ["calls", of(number(usage.calls), "calls"), "calls of models and tools"],
    ["tokens", of(number(tokens(usage)), "tokens"), spent({ ...usage, cost: 0, saved: 0 }) ?? ""], ["cached", usage.cached ? number(usage.cached) : "", "input tokens from the provider's cache"],
    ["cost", usage.cost || limits.cost !== undefined ? of(money(usage.cost), "cost", money) : ""], ["saved", usage.saved ? money(usage.saved) : "", "by the provider's cache"],
    ["alive", limits.seconds !== undefined || span > 1.2 * run.seconds + 0.1 ? of(lasting(run.seconds), "seconds", lasting) : "", "without pauses"], ["took", lasting(span), began ? "from the beginning of the fork to its last record" : "from the first record to the last"],
    ["idle", waited >= 0.5 ? lasting(waited) : ""], ["began", new Date(run.start * 1000 + began).toLocaleString()],
    ["tracebacks", run.traces_left_out ? number(run.traces_left_out) + " left out" : "", "of steps and calls; those of this page have 2,000,000 characters"],
    ["notes", notes ?? "", "what people wrote about the run and its steps"],
  ];
  return found.filter(([, value]) => value);
}
