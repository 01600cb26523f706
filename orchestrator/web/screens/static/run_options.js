// @ts-check
// What a run is started with besides its input: the policy, limits, the model, labels and an id; and which models and
// tools it uses.

import { Problem } from "./api.js";
import { make } from "./elements.js";

/**
 * @typedef {{models: string[], asks_default: boolean, choices: string[], tools: {name: string, risk: string, effect: string}[]}} Parts
 * @typedef {{parts?: Parts, limits?: Record<string, number | null>, risks?: string[], models?: Record<string, string>, id?: boolean, folded?: boolean}} Offered
 *   `models`: names of models to choose from, each with what it is called; else those of `parts`
 */

/** @type {[string, string, string, boolean][]} name, what it is called, its unit, whether it is a whole number */
const LIMITS = [["steps", "Steps", "of all nodes", true], ["seconds", "Seconds", "of working time", false], ["cost", "Cost", "in the currency of the prices", false], ["calls", "Calls", "of models and tools", true], ["tokens", "Tokens", "of all calls of models", true]];
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 9 }); // 100000 as 100K
/** @type {Record<string, string>} */
const POLICIES = { none: "calls of tools without risk", read: "calls that only read", write: "calls that write", dangerous: "all calls, dangerous ones too" };

/** The labels of lines `name: value` (or `name=value`). @param {string} text @returns {Record<string, string>} */
export function labelsOf(text) {
  /** @type {Record<string, string>} */
  const found = Object.create(null);
  for (const line of text.split("\n").map((one) => one.trim()).filter(Boolean)) {
    const [, name, value] = /^([^:=]+?)\s*[:=]\s*(.*)$/.exec(line) ?? [];
    if (name === undefined) throw new SyntaxError(`Write each label as name: value, one on a line, and not ${line.slice(0, 100)}.`);
    found[name] = value;
  }
  return found;
}

/** The models and tools that a run uses, in words; null: it uses none. @param {Parts | undefined} parts */
export function usedParts(parts) {
  if (!parts || (!parts.models.length && !parts.tools.length)) return null;
  const tools = parts.tools.map(({ name, risk }) => (risk === "none" || risk === "read" ? name : `${name} (${risk})`));
  return make("p", { class: "soft uses data" },
    parts.models.length ? `Model: ${parts.models.join(", ")}. ` : "", tools.length ? `Tools: ${tools.slice(0, 12).join(", ")}${tools.length > 12 ? ` and ${tools.length - 12} more` : ""}.` : "");
}

const MOST_BUTTONS = 6; // choices that are shown as buttons, which take one click; more are a list

/**
 * One of some values: radio buttons, or a list if there are many.
 * @param {string} field @param {string} called @param {[string, string][]} values  each with what it is called; the first one is chosen
 * @param {boolean} [list]
 * @returns {{element: HTMLElement, value: () => string}}
 */
function choice(field, called, values, list = values.length > MOST_BUTTONS) {
  if (list) {
    const select = /** @type {HTMLSelectElement} */ (make("select", { "aria-label": called, "data-field": field }, ...values.map(([value, name]) => make("option", { value }, name))));
    return { element: select, value: () => select.value };
  }
  const element = make("div", { class: "choice", role: "radiogroup", "aria-label": called, "data-field": field, tabindex: -1 }, ...values.map(([value, name], at) =>
    make("label", {}, make("input", { type: "radio", name: `option-${field}`, value, checked: at === 0 }), " ", make("span", { class: "data" }, name))));
  return { element, value: () => /** @type {HTMLInputElement | null} */ (element.querySelector("input:checked"))?.value ?? "" };
}

/** A choice of a model; null: there is none to choose. @param {Offered} offered @param {boolean} [list] */
export function modelChoice({ parts, models }, list) {
  const named = models ? Object.entries(models) : (parts?.choices ?? []).map((one) => /** @type {[string, string]} */ ([one, one]));
  if (!named.length) return null;
  return choice("model", "Model", models ? named : [["", "the default one"], ...named], list);
}

export class RunOptions {
  /** @param {Offered} offered */
  constructor(offered) {
    const { parts, limits = {}, risks = [] } = offered;
    /** @type {Map<string, HTMLElement>} */
    this.faults = new Map();
    this.model = modelChoice(offered);
    this.policy = risks.length ? choice("approve", "Policy", [["", "ask where the graph asks"], ...risks.map((one) => /** @type {[string, string]} */ ([one, `approve ${POLICIES[one] ?? one}`]))]) : null;
    /** @type {[string, HTMLInputElement, boolean][]} */
    this.limits = LIMITS.map(([name, called, , whole]) => [name, /** @type {HTMLInputElement} */ (make("input", {
      type: "text", inputmode: "decimal", autocomplete: "off", "aria-label": `Limit: ${called}`, "data-field": `limits.${name}`, placeholder: typeof limits[name] === "number" ? `≤ ${SHORT.format(limits[name])}` : "no limit" })), whole]);
    this.labels = /** @type {HTMLTextAreaElement} */ (make("textarea", { rows: 2, spellcheck: "false", "aria-label": "Labels", "data-field": "labels", placeholder: "team: ops" }));
    this.id = offered.id ? /** @type {HTMLInputElement} */ (make("input", { type: "text", autocomplete: "off", spellcheck: "false", "aria-label": "Id", "data-field": "run_id", placeholder: "made by the server" })) : null;
    this.whole = make("p", { class: "fault", role: "alert" });
    const often = [
      this.model ? this.row("model", "Model", this.model.element, "For nodes that name none.") : "",
      this.row("approve", "Policy", this.policy?.element ?? make("span", { class: "soft" }, "ask where the graph asks"), this.policy ? "" : "This server lets requests approve nothing in advance."),
      make("div", {}, make("dt", {}, "Limits"), make("dd", {}, make("div", { class: "limits" }, ...this.limits.map(([name, input], at) => this.limit(name, LIMITS[at][1], input, LIMITS[at][2]))))),
    ];
    const seldom = [this.row("labels", "Labels", this.labels, "One on a line."), this.id ? this.row("run_id", "Id", this.id, "The same id and input mean the same run.") : ""];
    /** @param {string} title @param {...(Node | string)} rows */
    const folded = (title, ...rows) => make("details", {}, make("summary", {}, title), make("dl", { class: "arguments form" }, ...rows));
    this.element = make("div", { class: "options" },
      ...(offered.folded ? [folded("Model, policy, limits, labels", ...often, ...seldom)] : [make("dl", { class: "arguments form" }, ...often), folded(this.id ? "Labels and id" : "Labels", ...seldom)]),
      usedParts(parts) ?? "", this.whole);
  }

  /** @param {string} name @param {string} called @param {HTMLInputElement} input @param {string} unit */
  limit(name, called, input, unit) {
    const fault = make("span", { class: "fault", role: "alert" });
    this.faults.set(`limits.${name}`, fault);
    return make("label", { title: unit }, make("span", { class: "soft" }, called), input, fault);
  }

  /** @param {string} name @param {string} called @param {HTMLElement} field @param {string} about */
  row(name, called, field, about) {
    const fault = make("span", { class: "fault", role: "alert" });
    this.faults.set(name, fault);
    return make("div", {}, make("dt", {}, called), make("dd", {}, field, about ? make("span", { class: "soft about" }, about) : null, fault));
  }

  /** What was chosen, as fields of the body; null: a field says what is wrong with it. @returns {Record<string, unknown> | null} */
  read() {
    this.clear();
    /** @type {Record<string, unknown>} */
    const body = {};
    if (this.model) body.model = this.model.value() || null;
    const policy = this.policy?.value();
    if (policy) body.approve = policy;
    if (this.id?.value.trim()) body.run_id = this.id.value.trim();
    /** @type {Record<string, number>} */
    const limits = {};
    for (const [name, input, whole] of this.limits) {
      const text = input.value.trim(), number = Number(text);
      if (text === "") continue;
      if (!Number.isFinite(number) || number <= 0 || (whole && !Number.isInteger(number))) return this.fault(`limits.${name}`, whole ? "give a whole number of 1 or more" : "give a number above 0");
      limits[name] = number;
    }
    if (Object.keys(limits).length) body.limits = limits;
    try {
      const labels = labelsOf(this.labels.value);
      if (Object.keys(labels).length) body.labels = labels;
    } catch (error) {
      return this.fault("labels", error instanceof Error ? error.message : String(error));
    }
    return body;
  }

  /** @param {string} name @param {string} text @returns {null} */
  fault(name, text) {
    (this.faults.get(name) ?? this.whole).textContent = text;
    const field = [...this.element.querySelectorAll("[data-field]")].find((one) => one.getAttribute("data-field") === name);
    const folded = field?.closest("details");
    if (folded) folded.open = true;
    if (field instanceof HTMLElement) field.focus();
    return null;
  }

  clear() {
    for (const one of this.faults.values()) one.textContent = "";
    this.whole.textContent = "";
  }

  /**
   * Say at the fields what the server refused.
   * @param {unknown} error @param {{blame: (name: string, text: string) => boolean}[]} inputs  the forms of the input
   * @returns {string} what is said at no field
   */
  blame(error, inputs) {
    if (!(error instanceof Problem)) return error instanceof SyntaxError ? error.message : "The server does not answer; nothing was started. Try again.";
    const kind = String(error.body.type ?? "").split(":").at(-1) ?? "";
    const place = { "approve-refused": "approve", "run-exists": "run_id", "limits-refused": "limits." }[kind] ?? String(error.body.where ?? "");
    const errors = /** @type {{field: string, message: string}[]} */ (error.body.errors ?? (place ? [{ field: place, message: error.message }] : []));
    /** @type {string[]} */
    const left = [];
    for (const { field, message } of errors) {
      const [first, name = ""] = field.split(".");
      if (first === "input" && inputs.some((one) => one.blame(name, message))) continue;
      const known = this.faults.has(field) ? field : this.faults.has(first) ? first : "";
      if (known) this.fault(known, message);
      else if (first === "limits") this.fault("", message);
      else left.push(message);
    }
    return errors.length ? left.join("; ") : error.message;
  }
}
