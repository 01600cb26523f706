// Values, durations and amounts as text.

/** @import { Usage } from "./types.js" */

// Characters that cannot be seen, or that turn the direction of what is read, are shown as their escapes; but not
// joiners and variation selectors where they belong to a word or an emoji. The same as orchestrator/visible.py.
const JOINING = ["Arabic", "Syriac", "Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala", "Myanmar", "Khmer", "Mongolian"].map((name) => "\\p{Script=" + name + "}").join("");
const HIDDEN = new RegExp(
  "((?<=[\\p{Extended_Pictographic}\\p{So}\\p{Sm}])[\\ufe0e\\ufe0f]|(?<=[#*0-9])\\ufe0f(?=\\u20e3)" +
  "|(?<=[\\p{Extended_Pictographic}\\p{Emoji_Modifier}\\ufe0f])\\u200d(?=\\p{Extended_Pictographic})" +
  "|(?<=[" + JOINING + "])[\\u200c\\u200d](?=[" + JOINING + "])|[\\n\\t])" +
  "|[\\p{Default_Ignorable_Code_Point}\\p{C}\\p{Zl}\\p{Zp}\\u2800\\ufffc\\u{13441}\\u{13442}\\u{16fe4}\\u{1d159}]", "gu");

/** @param {number} code */
function escaped(code) {
  return code < 0x10000 ? "\\u" + code.toString(16).padStart(4, "0") : "\\U" + code.toString(16).padStart(8, "0");
}

/**
 * A text of strangers, with escapes for what cannot be seen.
 * @param {any} text
 * @returns {string}
 */
export function visible(text) {
  return String(text).replace(/\r\n?/g, "\n").replace(HIDDEN, (found, meant) => meant ?? escaped(found.codePointAt(0) ?? 0));
}

/**
 * A text as it is, anything else as JSON on several lines.
 * @param {any} value
 */
export function pretty(value) { return visible(typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? ""); }

/**
 * A duration.
 * @param {number | null | undefined} seconds
 */
export function lasting(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 0.0005) return "0 ms";
  if (seconds < 1) return Math.round(seconds * 1000) + " ms";
  if (seconds < 60) return seconds.toFixed(seconds < 10 ? 2 : 1) + " s";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min " + Math.round(seconds % 60) + " s";
  if (seconds < 86400) return Math.floor(seconds / 3600) + " h " + Math.round((seconds % 3600) / 60) + " min";
  return Math.floor(seconds / 86400) + " d " + Math.round((seconds % 86400) / 3600) + " h";
}

/** @param {number | null | undefined} value */
export function number(value) { return (value ?? 0).toLocaleString("en"); }

/** @param {number | null | undefined} value */
export function money(value) { return value ? (Math.abs(value) < 0.01 ? value.toFixed(6) : value.toFixed(4)) : "0"; }

/** @param {Usage | undefined} usage */
export function tokens(usage) { return usage ? (usage.in ?? 0) + (usage.out ?? 0) : 0; }

/**
 * What calls used, in words; null: nothing.
 * @param {Usage | undefined} usage
 */
export function spent(usage) {
  if (!usage || !tokens(usage)) return null;
  const cached = usage.cached ? " (" + number(usage.cached) + " cached)" : "";
  const cost = usage.cost ? ", cost " + money(usage.cost) : "", saved = usage.saved ? ", " + money(usage.saved) + " saved by the provider's cache" : "";
  return number(usage.in) + " in" + cached + ", " + number(usage.out) + " out" + cost + saved + (usage.estimated ? " (estimated)" : "");
}

/**
 * A number with the word for it.
 * @param {number} count
 * @param {string} word
 */
export function counted(count, word) { return number(count) + " " + word + (count === 1 ? "" : "s"); }
