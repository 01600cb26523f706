// @ts-check
// Making elements. Text of models, tools and people becomes text nodes, never markup, with escapes for what cannot be seen.

import { visible } from "./modules/texts.js";

export { byId } from "./modules/elements.js";

const READ = new Set(["title", "aria-label", "placeholder", "alt"]); // attributes that people read

/** @typedef {Node | string | number | null | undefined | false} Child */

/** Text in which words between backticks are code. @param {string} text @returns {Child[]} */
export const prose = (text) => text.split("`").map((part, at, all) => (at % 2 === 0 ? part : at < all.length - 1 ? make("code", {}, part) : `\`${part}`));

/**
 * @param {string} tag
 * @param {Record<string, any>} [attributes] `on…` adds a listener; null, undefined and false are left out
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : READ.has(name) ? visible(value) : String(value));
  }
  for (const child of children.flat()) if (child !== null && child !== undefined && child !== false) element.append(child instanceof Node ? child : visible(child));
  return element;
}
