// Making elements. What strangers said becomes text nodes, never markup.
import { pretty, visible } from "./texts.js";

/** @typedef {Node | string | null | undefined | false} Child */
/** @typedef {Child | Child[] | (Child | Child[])[]} Children */
/** @typedef {Record<string, string | number | boolean | null | undefined | ((event: any) => void)>} Attributes */

/**
 * @param {string} tag
 * @param {Attributes} attributes  `on...` are listeners; those that are null or false are left out.
 * @param {...Children} children
 * @returns {HTMLElement}
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = String(value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...present(children));
  return element;
}

/**
 * The children that are there.
 * @param {Children[]} children
 * @returns {(Node | string)[]}
 */
export function present(children) {
  const found = /** @type {Child[]} */ (children.flat(3));
  return /** @type {(Node | string)[]} */ (found.filter((child) => child !== null && child !== undefined && child !== false));
}

/**
 * The element of the page with an id.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error("the page has no " + id);
  return found;
}

/**
 * A value as JSON, or a text as it is.
 * @param {any} value
 * @param {string} kind
 */
export function block(value, kind = "") { return make("pre", { class: "data " + kind, tabindex: 0 }, pretty(value)); }

/** @param {string} text */
export function empty(text) { return make("p", { class: "empty" }, text); }

/**
 * Facts by name; those that are empty are left out.
 * @param {[string, any][]} facts
 */
export function described(facts) {
  const given = facts.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return make("dl", {}, given.map(([name, value]) => [make("dt", {}, name), make("dd", { class: "data" }, visible(value))]));
}
