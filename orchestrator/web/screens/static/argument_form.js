// @ts-check
// The arguments of a call as a form, made from the JSON Schema of its tool.

import { make } from "./elements.js";

/** @typedef {Record<string, any>} Schema */
/** @typedef {{element: HTMLElement, read: () => unknown}} Field `read` throws a SyntaxError whose message says what is wrong */

/** @param {Schema} schema @param {Schema} whole */
function resolved(schema, whole) {
  const name = typeof schema?.$ref === "string" ? schema.$ref.replace(/^#\/\$defs\//, "") : "";
  return (name && whole.$defs?.[name]) || schema || {};
}

/**
 * A field for one value. What has no field of its own is edited as JSON.
 * @param {string} name
 * @param {unknown} value
 * @param {Schema} schema
 * @returns {Field}
 */
function field(name, value, schema) {
  const label = { "aria-label": name, "data-field": name };
  if (Array.isArray(schema.enum) && schema.enum.every((one) => typeof one === "string") && typeof value === "string") {
    const options = schema.enum.map((one) => make("option", { selected: one === value, value: one }, one));
    const element = /** @type {HTMLSelectElement} */ (make("select", label, ...options));
    return { element, read: () => element.value };
  }
  if (typeof value === "boolean") {
    const element = /** @type {HTMLInputElement} */ (make("input", { ...label, type: "checkbox", checked: value }));
    return { element, read: () => element.checked };
  }
  if (typeof value === "string") {
    const long = value.length > 60 || value.includes("\n");
    const element = /** @type {HTMLInputElement | HTMLTextAreaElement} */ (
      long ? make("textarea", { ...label, rows: Math.min(16, value.split("\n").length + 1), spellcheck: "false" }) : make("input", { ...label, type: "text", spellcheck: "false", autocomplete: "off" })
    );
    element.value = value;
    return { element, read: () => element.value };
  }
  if (typeof value === "number") {
    const element = /** @type {HTMLInputElement} */ (make("input", { ...label, type: "text", inputmode: "decimal", autocomplete: "off" }));
    element.value = String(value);
    return {
      element,
      read: () => {
        const given = Number(element.value);
        if (element.value.trim() === "" || !Number.isFinite(given)) throw new SyntaxError("a number is needed");
        if (schema.type === "integer" && !Number.isInteger(given)) throw new SyntaxError("a whole number is needed");
        return given;
      },
    };
  }
  const text = value === undefined ? "" : JSON.stringify(value, null, 2);
  const element = /** @type {HTMLTextAreaElement} */ (make("textarea", { ...label, class: "json", rows: Math.min(16, text.split("\n").length + 1), spellcheck: "false", placeholder: "not given" }));
  element.value = text;
  return {
    element,
    read: () => {
      if (element.value.trim() === "") return undefined;
      try { return JSON.parse(element.value); } catch { throw new SyntaxError("this is not JSON"); }
    },
  };
}

/** A form for the arguments of a call. */
export class ArgumentForm {
  /** @param {Record<string, unknown>} args @param {Schema} schema of the tool's arguments */
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

  /** The arguments as they were edited; null: a field says what is wrong with it. @returns {Record<string, unknown> | null} */
  read() {
    /** @type {Record<string, unknown>} */
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
