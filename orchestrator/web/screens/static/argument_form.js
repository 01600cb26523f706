// @ts-check
// The arguments of a call as a form, made from the JSON Schema of its tool.

import { make } from "./elements.js";

/** @typedef {Record<string, any>} Schema */
/**
 * @typedef {{element: HTMLElement, read: () => string | undefined}} Field
 * `read` gives JSON text; undefined: nothing is given. It throws a SyntaxError whose message says what is wrong.
 */
const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/; // as JSON has them

/** @param {Schema} schema @param {Schema} whole */
function resolved(schema, whole) {
  const name = typeof schema?.$ref === "string" ? schema.$ref.replace(/^#\/\$defs\//, "") : "";
  return (name && whole.$defs?.[name]) || schema || {};
}

/**
 * A field for one value. What has no field of its own is edited as JSON.
 * @param {string} name
 * @param {string | undefined} before  The value as JSON text; undefined: there is none.
 * @param {Schema} schema
 * @returns {Field}
 */
function field(name, before, schema) {
  const value = before === undefined ? undefined : JSON.parse(before);
  const label = { "aria-label": name, "data-field": name };
  if (Array.isArray(schema.enum) && schema.enum.every((one) => typeof one === "string") && typeof value === "string") {
    const options = schema.enum.map((one) => make("option", { selected: one === value, value: one }, one));
    const element = /** @type {HTMLSelectElement} */ (make("select", label, ...options));
    return { element, read: () => JSON.stringify(element.value) };
  }
  if (typeof value === "boolean") {
    const element = /** @type {HTMLInputElement} */ (make("input", { ...label, type: "checkbox", checked: value }));
    return { element, read: () => String(element.checked) };
  }
  if (typeof value === "string") {
    const long = value.length > 60 || value.includes("\n");
    const element = /** @type {HTMLInputElement | HTMLTextAreaElement} */ (
      long ? make("textarea", { ...label, rows: Math.min(16, value.split("\n").length + 1), spellcheck: "false" }) : make("input", { ...label, type: "text", spellcheck: "false", autocomplete: "off" })
    );
    element.value = value;
    const shown = element.value; // other line breaks, perhaps
    return { element, read: () => (element.value === shown ? before : JSON.stringify(element.value)) };
  }
  if (typeof value === "number") {
    const element = /** @type {HTMLInputElement} */ (make("input", { ...label, type: "text", inputmode: "decimal", autocomplete: "off" }));
    element.value = before ?? "";
    return { element, read: () => numberOf(element.value.trim(), schema.type === "integer") };
  }
  const text = before ?? "";
  const element = /** @type {HTMLTextAreaElement} */ (make("textarea", { ...label, class: "json", rows: Math.min(16, text.split("\n").length + 1), spellcheck: "false", placeholder: "not given" }));
  element.value = text;
  return {
    element,
    read: () => {
      if (element.value.trim() === "") return undefined;
      try { JSON.parse(element.value); } catch { throw new SyntaxError("this is not JSON"); }
      return element.value;
    },
  };
}

/** What was written, as a number of JSON with all of its digits. @param {string} text @param {boolean} whole */
function numberOf(text, whole) {
  if (/^[+-]?\d+$/.test(text)) return String(BigInt(text.replace("+", "")));
  const given = Number(text);
  if (text === "" || !Number.isFinite(given)) throw new SyntaxError("a number is needed");
  if (whole && !Number.isInteger(given)) throw new SyntaxError("a whole number is needed");
  return whole ? String(BigInt(given)) : NUMBER.test(text) ? text : String(given);
}

/** A form for the arguments of a call. */
export class ArgumentForm {
  /** @param {Record<string, string>} args each as JSON text @param {Schema} schema of the tool's arguments */
  constructor(args, schema) {
    const names = [...new Set([...Object.keys(schema?.properties ?? {}), ...Object.keys(args)])];
    /** @type {Map<string, Field & {fault: HTMLElement}>} */
    this.fields = new Map();
    const rows = names.map((name) => {
      const made = field(name, args[name], resolved(schema?.properties?.[name], schema ?? {}));
      const fault = make("span", { class: "fault", role: "alert" });
      this.fields.set(name, { ...made, fault });
      return make("div", {}, make("dt", { class: "data" }, name), make("dd", {}, made.element, fault));
    });
    this.element = make("dl", { class: "arguments form" }, ...rows);
  }

  /** The arguments as they were edited; each as JSON text; null: a field says what is wrong with it. @returns {Record<string, string> | null} */
  read() {
    /** @type {Record<string, string>} */
    const args = {};
    let good = true;
    for (const [name, one] of this.fields) {
      try {
        const value = one.read();
        if (value !== undefined) Object.defineProperty(args, name, { value, enumerable: true, configurable: true, writable: true });
        one.fault.textContent = "";
      } catch (error) {
        one.fault.textContent = error instanceof Error ? error.message : String(error);
        if (good) one.element.focus();
        good = false;
      }
    }
    return good ? args : null;
  }
}
