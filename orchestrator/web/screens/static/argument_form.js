// @ts-check
// The arguments of a call as a form, made from the JSON Schema of its tool.

import { make } from "./elements.js";
import { visible } from "./modules/texts.js";

/** @typedef {Record<string, any>} Schema */
/**
 * @typedef {{element: HTMLElement, read: () => string | undefined, hint?: string}} Field
 * `read` gives JSON text; undefined: nothing is given. It throws a SyntaxError whose message says what is wrong.
 */
const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/; // as JSON has them

/** What an object has of its own by a name, which a stranger may have chosen. @param {any} of @param {string} name */
const own = (of, name) => (of && Object.hasOwn(of, name) ? of[name] : undefined);

/** @param {Schema} schema @param {Schema} whole */
export function resolved(schema, whole) {
  const name = typeof schema?.$ref === "string" ? schema.$ref.replace(/^#\/\$defs\//, "") : "";
  return (name && own(whole.$defs, name)) || schema || {};
}

/** What a schema allows besides null, as `Optional` has it. @param {Schema} schema @param {Schema} whole @returns {Schema} */
function given(schema, whole) {
  const found = resolved(schema, whole);
  const ways = (found.anyOf ?? found.oneOf ?? []).filter((/** @type {Schema} */ one) => one.type !== "null");
  return ways.length === 1 ? resolved(ways[0], whole) : found;
}

/** The type of the items of a list that is written as lines, one item a line; empty: it is not. @param {unknown} value @param {Schema} schema @param {Schema} whole */
function itemType(value, schema, whole) {
  if (schema.type !== "array" || Array.isArray(schema.prefixItems)) return "";
  const type = resolved(schema.items, whole).type ?? "";
  const fits = (/** @type {unknown} */ one) => (type === "string" ? typeof one === "string" && one !== "" && one === one.trim() && !/[\r\n]/.test(one) : typeof one === "number");
  if (!["string", "integer", "number"].includes(type) || Array.isArray(resolved(schema.items, whole).enum)) return "";
  return value === undefined || value === null || (Array.isArray(value) && value.every(fits)) ? type : "";
}

/** A list as lines. JSON is taken as well. @param {string} type of the items @param {string | undefined} before @param {Record<string, string>} label @param {string} placeholder @returns {Field} */
function lines(type, before, label, placeholder) {
  const there = before !== undefined && before !== "null";
  const items = !there ? [] : type === "string" ? JSON.parse(before) : before.replace(/[[\]\s]/g, "").split(",").filter(Boolean); // numbers keep their digits
  const element = /** @type {HTMLTextAreaElement} */ (make("textarea", { ...label, rows: Math.min(16, items.length + 2), spellcheck: "false", placeholder }));
  element.value = items.join("\n");
  const shown = element.value;
  return {
    element,
    hint: "One item a line, or JSON.",
    read: () => {
      if (element.value === shown) return before;
      const text = element.value.trim();
      if (text === "") return there ? "[]" : before;
      if (text.startsWith("[")) {
        try {
          const whole = JSON.parse(text);
          if (Array.isArray(whole) && whole.every((one) => typeof one === (type === "string" ? "string" : "number"))) return text;
        } catch { /* then these are lines */ }
      }
      const parts = text.split(/\r?\n/).map((one) => one.trim()).filter(Boolean);
      return `[${parts.map((one, at) => (type === "string" ? JSON.stringify(one) : inLine(one, at + 1, type === "integer"))).join(",")}]`;
    },
  };
}

/** @param {string} text @param {number} line @param {boolean} whole */
function inLine(text, line, whole) {
  try { return numberOf(text, whole); } catch (error) { throw new SyntaxError(`line ${line}: ${error instanceof Error ? error.message : error}`); }
}

/** The kind of field that a value has; of one that is not there, or null, its schema decides. @param {unknown} value @param {Schema} schema */
function kindOf(value, schema) {
  const there = value !== undefined && value !== null;
  const words = Array.isArray(schema.enum) && schema.enum.every((one) => typeof one === "string");
  if (words && (!there || schema.enum.includes(value))) return "enum";
  if (there) return typeof value;
  return { string: "string", boolean: "boolean", integer: "number", number: "number" }[/** @type {string} */ (schema.type)] ?? "json";
}

/**
 * A field for one value. What has no field of its own is edited as JSON.
 * @param {string} name
 * @param {string | undefined} before  The value as JSON text; undefined: there is none.
 * @param {Schema} schema
 * @param {Schema} whole  The schema that it is a part of.
 * @returns {Field}
 */
function field(name, before, schema, whole) {
  const value = before === undefined ? undefined : JSON.parse(before);
  const none = value === undefined || value === null; // what stays empty stays as it was
  const usual = schema.default === undefined || schema.default === null || schema.default === "" ? "" : short(JSON.stringify(schema.default));
  const placeholder = none ? (value === null ? "null" : usual ? `default: ${usual}` : schema.needed ? "needed" : "not given") : null;
  const label = { "aria-label": name, "data-field": name };
  const items = itemType(value, schema, whole);
  if (items) return lines(items, before, label, placeholder ?? "");
  const kind = kindOf(value, schema);
  if (kind === "enum" || (kind === "boolean" && none)) {
    /** @type {string[]} */
    const words = kind === "enum" ? schema.enum : ["true", "false"];
    const options = words.map((one) => make("option", { selected: one === value, value: one }, visible(one)));
    const element = /** @type {HTMLSelectElement} */ (make("select", label, ...(none ? [make("option", { value: "", selected: true }, placeholder)] : []), ...options));
    const write = (/** @type {string} */ one) => (kind === "enum" ? JSON.stringify(one) : one);
    return { element, read: () => (none && element.selectedIndex === 0 ? before : write(element.value)) };
  }
  if (kind === "boolean") {
    const element = /** @type {HTMLInputElement} */ (make("input", { ...label, type: "checkbox", checked: value }));
    return { element, read: () => String(element.checked) };
  }
  if (kind === "string") {
    const text = none ? "" : /** @type {string} */ (value);
    const long = text.length > 60 || text.includes("\n");
    const element = /** @type {HTMLInputElement | HTMLTextAreaElement} */ (
      long ? make("textarea", { ...label, rows: Math.min(16, text.split("\n").length + 1), spellcheck: "false" }) : make("input", { ...label, type: "text", spellcheck: "false", autocomplete: "off", placeholder })
    );
    element.value = text;
    const shown = element.value; // other line breaks, perhaps
    return { element, read: () => (element.value === shown ? before : JSON.stringify(element.value)) };
  }
  if (kind === "number") {
    const element = /** @type {HTMLInputElement} */ (make("input", { ...label, type: "text", inputmode: "decimal", autocomplete: "off", placeholder }));
    element.value = none ? "" : before ?? "";
    return { element, read: () => (none && element.value.trim() === "" ? before : numberOf(element.value.trim(), schema.type === "integer")) };
  }
  const text = before ?? "";
  const element = /** @type {HTMLTextAreaElement} */ (make("textarea", { ...label, class: "json", rows: Math.min(16, text.split("\n").length + 1), spellcheck: "false", placeholder: placeholder ?? "not given" }));
  element.value = text;
  return {
    element,
    read: () => {
      if (element.value.trim() === "") return undefined;
      try { JSON.parse(element.value); } catch { throw new SyntaxError("this is not JSON"); }
      return element.value;
    },
    hint: none ? "JSON." : "",
  };
}

/** @param {string} text */
const short = (text) => (text.length > 60 ? `${text.slice(0, 59)}…` : text);

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
    const needed = new Set(Array.isArray(schema?.required) ? schema.required : []);
    /** @type {Map<string, Field & {fault: HTMLElement}>} */
    this.fields = new Map();
    const rows = names.map((name) => {
      const declared = own(schema?.properties, name), kind = given(declared, schema ?? {});
      const made = field(name, own(args, name), { ...kind, default: declared?.default ?? kind.default, needed: needed.has(name) }, schema ?? {});
      const fault = make("span", { class: "fault", role: "alert" });
      this.fields.set(name, { ...made, fault });
      const text = own(args, name) ?? "", seen = visible(text); // a field of a form cannot show what cannot be seen
      const beside = seen === text ? null : make("span", { class: "soft data" }, seen);
      const said = String(declared?.description ?? kind.description ?? "");
      const about = [made.hint && /[^.!?:]$/.test(said) ? `${said}.` : said, made.hint].filter(Boolean).join(" ");
      return make("div", {}, make("dt", { class: "data" }, visible(name)), make("dd", {}, made.element, beside, fault, about ? make("span", { class: "soft about data" }, about) : null));
    });
    this.element = make("dl", { class: "arguments form" }, ...rows);
  }

  /** Say at a field what is wrong with it; false: there is no such field. @param {string} name @param {string} text */
  blame(name, text) {
    const one = this.fields.get(name);
    if (!one) return false;
    one.fault.textContent = text;
    return true;
  }

  /**
   * The arguments as they were edited, each as JSON text.
   * @param {{focus?: boolean}} [how]  Whether the first field with a fault gets the focus.
   * @returns {Record<string, string> | null} null: a field says what is wrong with it
   */
  read({ focus = true } = {}) {
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
        if (good && focus) one.element.focus();
        good = false;
      }
    }
    return good ? args : null;
  }
}
