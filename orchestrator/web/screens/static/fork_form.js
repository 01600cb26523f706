// @ts-check
// The form of a fork: values of the state, another result or answer, the version of the graph; and what it would reuse and
// ask about, as the server works it out.

import { call, object, Problem, root } from "./api.js";
import { ArgumentForm } from "./argument_form.js";
import { answerPart, UNCHANGED } from "./fork_answer.js";
import { make } from "./elements.js";
import { effectList, effectSum } from "./fork_effects.js";
import { requestPart } from "./fork_request.js";
import { differences } from "./modules/differences.js";
import { modelChoice, usedParts } from "./run_options.js";

/** @import { Point } from "./modules/go_on.js" */
/** @import { Part } from "./fork_answer.js" */
/** @typedef {{ close: () => void, fault: (text: string) => void }} How */
/** @typedef {Record<string, string>} Texts  JSON texts by name. */

const PAUSE = 350; // milliseconds without a change before the server is asked what the fork would do
const ROWS = 8; // of a long value, until it is made larger
const KINDS = { " ": "same", "+": "add", "-": "cut" };

/** The forms of one run, one for each record. */
export class ForkForms {
  /** @param {string} runId */
  constructor(runId) {
    this.runId = runId;
    /** @type {Map<number, ForkForm>} */
    this.forms = new Map();
  }

  /** @param {Point} point @param {How} how */
  form(point, how) {
    let form = this.forms.get(point.seq);
    if (!form || form.failed) this.forms.set(point.seq, (form = new ForkForm(this.runId, point.seq)));
    form.show(how);
    return form.element;
  }
}

class ForkForm {
  /** @param {string} runId @param {number} seq */
  constructor(runId, seq) {
    this.path = `/runs/${encodeURIComponent(runId)}/fork`;
    this.seq = seq;
    this.failed = false;
    this.sending = false;
    /** @type {How} */
    this.how = { close: () => undefined, fault: () => undefined };
    this.timer = 0;
    /** @type {AbortController | null} */
    this.asking = null;
    /** @type {Part[]} */
    this.parts = [];
    this.branch = 0;
    this.element = /** @type {HTMLFormElement} */ (make("form", { class: "fork", "aria-busy": "true", novalidate: true }, make("p", { class: "soft" }, "Reading …")));
    this.element.addEventListener("submit", (event) => { event.preventDefault(); void this.send(); });
    this.element.addEventListener("input", () => this.changed());
    this.element.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.element.requestSubmit(); });
    void this.load();
  }

  /** It is looked at. @param {How} how */
  show(how) {
    this.how = how;
    if (this.loaded) this.changed(0);
  }

  async load() {
    try {
      this.fill(await call(`${this.path}/form?at=${this.seq}`));
    } catch (error) {
      this.failed = true;
      this.element.replaceChildren();
      this.how.fault(wordsOf(error));
    }
    this.element.removeAttribute("aria-busy");
  }

  /** @param {any} found what the server says of the record */
  fill(found) {
    this.found = found;
    if (found.answer) this.parts.push(answerPart(found.answer));
    if (found.request) this.parts.push(requestPart(found.request));
    if (found.result) this.parts.push(resultPart(found.result));
    this.states = found.branches.map((/** @type {any} */ one) => statePart(one));
    this.stateBox = make("div");
    this.branches = /** @type {HTMLSelectElement} */ (make("select", { "aria-label": "Branch", onchange: () => this.pick(this.branches?.selectedIndex ?? 0) },
      ...found.branches.map((/** @type {any} */ one) => make("option", {}, `${one.path ?? "outside branches"} (at ${one.node})`))));
    this.version = /** @type {HTMLInputElement} */ (make("input", { type: "checkbox", "data-field": "graph" }));
    this.id = /** @type {HTMLInputElement} */ (make("input", { type: "text", "data-field": "run_id", "aria-label": "Id", placeholder: "made by the server", spellcheck: "false", autocomplete: "off" }));
    this.labels = /** @type {HTMLTextAreaElement} */ (make("textarea", { "data-field": "labels", "aria-label": "Labels", rows: 2, placeholder: "name=value, one on a line", spellcheck: "false" }));
    this.model = modelChoice({ parts: found.parts }, true);
    const uses = usedParts(found.parts);
    this.faults = Object.fromEntries(["state", "graph", "model", "run_id", "labels", ""].map((name) => [name, make("p", { class: "fault", role: "alert" })]));
    this.lines = make("div", { class: "diff", tabindex: 0 });
    this.changes = /** @type {HTMLDetailsElement} */ (make("details", { class: "changes", hidden: true, open: true }, make("summary", {}, "Difference to the run"), this.lines));
    this.effects = make("section", { class: "effects", "aria-label": "What the fork does", "aria-live": "polite" });
    this.button = /** @type {HTMLButtonElement} */ (make("button", { class: "first", title: "Make the fork (Ctrl Enter)" }, found.known ? "Fork and run" : "Fork"));
    const inherited = Object.entries(found.labels).map(([name, value]) => `${name}=${value}`).join(", ");
    this.sum = make("span", { class: "soft sum" });
    this.element.replaceChildren(
      make("div", { class: "what" }, ...this.parts.map((part) => part.element),
      make("fieldset", {}, make("legend", {}, "State"),
        this.states.length > 1 ? make("p", { class: "branch" }, "Branch ", this.branches) : null,
        this.states.length ? this.stateBox : make("p", { class: "soft" }, "The run is over at this record: no step would see other values."), this.faults.state),
      found.other_version ? make("fieldset", {}, make("legend", {}, "Graph"), make("label", {}, this.version, " Go on in the version that this server has"), this.faults.graph) : null,
      found.known ? null : make("p", { class: "note" }, "This server does not have the graph, so the fork is made, and not run."),
      make("details", { class: "more" }, make("summary", {}, "Id and labels"), make("dl", { class: "arguments form" },
        make("div", {}, make("dt", {}, "Id"), make("dd", {}, this.id, this.faults.run_id)),
        make("div", {}, make("dt", {}, "Labels"), make("dd", {}, this.labels, inherited ? make("p", { class: "soft" }, `Beside those of the run: ${inherited}`) : null, this.faults.labels))))),
      make("div", { class: "then" }, this.changes, this.effects,
        uses ? make("fieldset", {}, make("legend", {}, "Model and tools"), uses, make("p", { class: "soft" }, "They are those of this server."),
          this.model ? make("label", {}, "Model of the fork ", this.model.element) : null, this.faults.model) : null),
      this.faults[""],
      make("div", { class: "acts" }, this.button, make("button", { type: "button", onclick: () => this.how.close() }, "Back"), this.sum),
    );
    this.pick(0);
    this.loaded = true;
  }

  /** Edit the state of another branch. @param {number} number */
  pick(number) {
    this.branch = number;
    const part = this.states?.[number];
    if (part) this.stateBox?.replaceChildren(part.element);
    this.changed(0);
  }

  /** What is written now; null: a field says what is wrong with it. @param {boolean} focus */
  read(focus) {
    const { found, states = [] } = this, state = states[this.branch];
    /** @type {Record<string, unknown>} */
    const body = { at: this.seq, start: found.known, labels: {} };
    /** @type {Texts} */
    const texts = {};
    /** @type {string[]} */
    const before = [], after = [];
    for (const part of [...this.parts, ...(state ? [state] : [])]) {
      const read = part.read(focus);
      if (!read) return null;
      Object.assign(texts, read.texts);
      before.push(...read.before);
      after.push(...read.after);
    }
    if (texts.update && found.branches[this.branch].path !== null) body.branch = found.branches[this.branch].path;
    if (this.version?.checked) body.graph = found.graph;
    if (this.model?.value()) body.model = this.model.value();
    if (this.id?.value.trim()) body.run_id = this.id.value.trim();
    const labels = labelsOf(this.labels?.value ?? "");
    this.faulty("labels", labels === null ? "Each line has to be name=value." : "");
    if (labels === null) return null;
    body.labels = labels;
    return { body, texts, before, after };
  }

  /** Something was written: show the difference, and ask what the fork would do. @param {number} [pause] */
  changed(pause = PAUSE) {
    const read = this.read(false);
    clearTimeout(this.timer);
    this.asking?.abort();
    if (!read || !this.changes || !this.lines) return;
    this.changes.hidden = read.after.length === 0;
    this.lines.replaceChildren(...differences(read.before.join("\n"), read.after.join("\n")).map(([sign, line]) => make("div", { class: KINDS[sign] }, line)));
    this.timer = window.setTimeout(() => void this.preview(), pause);
  }

  /** Ask the server what the fork would reuse and ask about; it refuses what it would refuse to fork. */
  async preview() {
    const read = this.read(false);
    if (!read) return;
    const { signal } = (this.asking = new AbortController());
    try {
      const found = await call(`${this.path}/preview`, { method: "POST", body: read.body, texts: read.texts, signal });
      this.clear();
      this.effects?.replaceChildren(...effectList(found));
      this.sum?.replaceChildren(effectSum(found));
    } catch (error) {
      if (!signal.aborted) this.blame(error, false);
    }
  }

  async send() {
    const read = this.read(true);
    if (!read || this.sending || !this.button) return;
    this.sending = this.button.disabled = true;
    clearTimeout(this.timer);
    this.asking?.abort();
    try {
      const made = await call(this.path, { method: "POST", body: read.body, texts: read.texts });
      const view = "request" in read.texts ? "#view=transcript" : ""; // where both replies stand beside each other
      location.assign(`${root}/runs/${encodeURIComponent(made.run_id)}${view}`);
    } catch (error) {
      this.blame(error, true);
    }
    this.sending = this.button.disabled = false;
  }

  // -- what is wrong ------------------------------------------------------------------------------------------------

  /** @param {string} name @param {string} text */
  faulty(name, text) {
    const place = this.faults?.[name] ?? this.faults?.[""];
    if (place) place.textContent = text;
  }

  clear() {
    for (const name of Object.keys(this.faults ?? {})) this.faulty(name, "");
    for (const part of [...this.parts, ...(this.states ?? [])]) part.fault("");
    this.how.fault("");
  }

  /** Say at the field what the server refused. @param {unknown} error @param {boolean} focus */
  blame(error, focus) {
    this.clear();
    this.effects?.replaceChildren();
    this.sum?.replaceChildren();
    const text = wordsOf(error), where = placeOf(error), state = this.states?.[this.branch];
    const part = this.parts.find((one) => one.name === where);
    if (where === "at") this.how.fault(text);
    else if (part) part.fault(text);
    else if (where === "update" && state?.fault(text)) { /* said at the field */ }
    else this.faulty({ update: "state", branch: "state" }[where] ?? where, text);
    if (!focus) return;
    const told = [...this.element.querySelectorAll(".fault")].find((one) => one.textContent);
    const folded = told?.closest("details");
    if (folded) folded.open = true;
    const field = told?.parentElement?.querySelector("input, textarea, select");
    if (field instanceof HTMLElement) field.focus();
    told?.scrollIntoView({ block: "nearest" });
  }
}

/** @param {unknown} error */
function wordsOf(error) {
  return error instanceof Problem ? error.message : "The server does not answer; nothing was made. Try again.";
}

/** The field that a problem is about. @param {unknown} error */
function placeOf(error) {
  if (!(error instanceof Problem)) return "";
  const { type = "", where = "", errors = [] } = /** @type {any} */ (error.body), kind = String(type).split(":").at(-1);
  if (kind === "invalid-update") return "update";
  if (kind === "invalid-answer" || kind === "question-unknown") return "answer";
  if (kind === "run-exists") return "run_id";
  if (kind === "stale-answer") return "request";
  if (["graph-changed", "graph-unknown", "tools-changed", "invalid-migration"].includes(kind ?? "")) return "graph";
  if (kind === "model-unknown") return "model";
  return String(where || errors[0]?.field || "").split(".")[0];
}

/** Labels as lines of name=value; null: a line is not. @param {string} text */
function labelsOf(text) {
  /** @type {Record<string, string>} */
  const found = Object.create(null);
  for (const line of text.split("\n").filter((one) => one.trim())) {
    const [, name, value] = /^\s*([^=]+?)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    if (name === undefined) return null;
    found[name] = value;
  }
  return found;
}

// -- parts of the form ----------------------------------------------------------------------------------------------

/** JSON in which texts keep their line breaks, for people. @param {string} name @param {string | undefined} text */
const readable = (name, text) => (text === undefined ? [] : `${name}: ${text.startsWith('"') ? JSON.parse(text) : text}`.split("\n"));

/** The values of a branch. @param {any} branch @returns {Part} */
function statePart({ values, blanked, schema }) {
  const form = new ArgumentForm(values, schema);
  for (const one of form.element.querySelectorAll("textarea")) one.rows = Math.min(one.rows, ROWS);
  const shown = form.read({ focus: false }) ?? {};
  const note = blanked.length ? make("p", { class: "soft" }, `Secrets are blanked in ${blanked.join(", ")}: a value that is edited there takes the place of all of it.`) : null;
  return {
    name: "update",
    element: make("div", {}, form.element, note),
    read(focus) {
      const now = form.read({ focus });
      if (!now) return null;
      const names = Object.keys(now).filter((name) => now[name] !== shown[name]);
      if (!names.length) return UNCHANGED;
      /** @type {Texts} */
      const update = Object.create(null);
      for (const name of names) update[name] = now[name];
      return {
        texts: { update: object(update) },
        before: names.flatMap((name) => readable(name, shown[name])), after: names.flatMap((name) => readable(name, now[name])),
      };
    },
    fault(text) {
      const field = /field '([^']+)'/.exec(text)?.[1] ?? "";
      for (const [name, one] of form.fields) one.fault.textContent = name === field ? text : "";
      return form.fields.has(field);
    },
  };
}

/** The result of a call. @param {any} result @returns {Part} */
function resultPart({ kind, name, value, output, error, blanked }) {
  const text = kind !== "effect" && value === null;
  const form = new ArgumentForm(value === null ? {} : { result: value }, { properties: { result: text ? { type: "string" } : {} } });
  const shown = form.read({ focus: false })?.result, fault = make("p", { class: "fault", role: "alert" });
  const what = kind === "model" ? "What the model said" : `What ${name} returned`;
  return {
    name: "result",
    element: make("fieldset", {}, make("legend", {}, what), error ? make("p", { class: "soft" }, `It failed: ${error}`) : null, form.element,
      blanked ? make("p", { class: "soft" }, "Secrets are blanked in it: what is edited takes the place of all of it.") : null, fault),
    read(focus) {
      const now = form.read({ focus });
      if (!now) return null;
      const made = now.result;
      if (made === undefined || made === shown) return UNCHANGED;
      return { texts: { result: output ? object({ output: made }) : made }, before: readable("result", shown), after: readable("result", made) };
    },
    fault(said) { fault.textContent = said; return true; },
  };
}
