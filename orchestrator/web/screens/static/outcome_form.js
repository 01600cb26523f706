// @ts-check
// The result of a call that a person gives: a form made from its JSON Schema, a text, or JSON.

import { object } from "./api.js";
import { ArgumentForm, resolved } from "./argument_form.js";
import { make } from "./elements.js";

/** @import { Schema } from "./argument_form.js" */

/**
 * An answer to the question what became of a call, in words. `result`: the form of the result that is given with it.
 * @typedef {{ choice: string, label: string, hint: string, result: "" | "TEXT" | "JSON", dangerous: boolean }} Outcome
 */

/** A way to give a result. @typedef {{ label: string, element?: HTMLElement, read: (focus: boolean) => string | null }} Way */

let count = 0;

export class ResultForm {
  /** @param {Schema | null | undefined} schema of the result @param {string | null} [before] the result so far, as JSON text */
  constructor(schema, before = null) {
    this.fault = make("p", { class: "fault", role: "alert" });
    /** @type {Way[]} */
    this.ways = [schema ? fields(schema, before) : this.text("Text", before, (text) => JSON.stringify(text)), this.text("JSON", before, (text) => { JSON.parse(text); return text; })];
    if (!schema || ways(schema).some((one) => one.type === "null")) this.ways.push({ label: "No result", read: () => "null" });
    const name = `result-${++count}`, at = before === null ? 0 : before === "null" && this.ways.length > 2 ? 2 : startsIn(schema, before);
    this.radios = this.ways.map((_, index) => /** @type {HTMLInputElement} */ (make("input", { type: "radio", name, value: String(index), checked: index === at })));
    this.element = make("div", { class: "result" },
      make("div", { class: "ways", onchange: () => this.draw(), role: "radiogroup", "aria-label": "The form of the result" }, this.ways.map((way, index) => make("label", {}, this.radios[index], ` ${way.label}`))),
      this.ways.flatMap((way) => (way.element ? [way.element] : [])), this.fault);
    this.draw();
  }

  get way() { return this.ways[this.radios.findIndex((one) => one.checked)]; }

  draw() {
    this.fault.textContent = "";
    for (const way of this.ways) if (way.element) way.element.hidden = way !== this.way;
  }

  /** A field for a text. @param {string} label @param {string | null} before @param {(text: string) => string} write @returns {Way} */
  text(label, before, write) {
    const json = label === "JSON";
    const element = /** @type {HTMLTextAreaElement} */ (make("textarea", { rows: 3, "aria-label": json ? "Result as JSON" : "Result", placeholder: json ? "The result as JSON" : "The result", class: json ? "json" : "", spellcheck: "false" }));
    if (before !== null && (json || before.startsWith('"'))) element.value = json ? before : JSON.parse(before);
    return {
      label, element,
      read: (focus) => {
        try {
          if (element.value.trim() !== "") return write(element.value);
          this.fault.textContent = "Give the result of the call.";
        } catch { this.fault.textContent = "This is not JSON."; }
        if (focus) element.focus();
        return null;
      },
    };
  }

  /** The result as JSON text; null: a field says what is wrong with it. @param {{focus?: boolean}} [how] */
  read({ focus = true } = {}) {
    this.fault.textContent = "";
    const found = this.way.read(focus);
    if (found === "") this.fault.textContent = "Give the result of the call.";
    return found || null;
  }
}

/** The alternatives of a schema. @param {Schema} schema @returns {Schema[]} */
function ways(schema) {
  const found = resolved(schema, schema);
  return (found.anyOf ?? found.oneOf ?? [found]).map((/** @type {Schema} */ one) => resolved(one, schema));
}

/** Where a result is shown that is there already: objects are edited as JSON, with all digits of their numbers. @param {Schema | null | undefined} schema @param {string} before */
const startsIn = (schema, before) => (schema ? Number(/^[[{]/.test(before)) : Number(!before.startsWith('"')));

/** The properties of an object, those that are needed first: a journal keeps no order. @param {Schema} schema @returns {Schema} */
const inOrder = ({ properties, required = [] }) => ({ ...Object.fromEntries(required.filter((/** @type {string} */ name) => name in properties).map((/** @type {string} */ name) => [name, properties[name]])), ...properties });

/** Fields made from a schema: those of an object, or one. @param {Schema} schema @param {string | null} before @returns {Way} */
function fields(schema, before) {
  const found = ways(schema).find((one) => one.type !== "null") ?? schema, shared = schema.$defs ? { $defs: schema.$defs } : {};
  const whole = found.type === "object" && Object.keys(found.properties ?? {}).length > 0;
  const form = whole ? new ArgumentForm({}, { ...found, properties: inOrder(found), ...shared }) : new ArgumentForm(before === null ? {} : { result: before }, { properties: { result: schema }, ...shared });
  return {
    label: "Form", element: form.element,
    read(focus) {
      const now = form.read({ focus });
      return now && (whole ? object(now) : now.result ?? "");
    },
  };
}
