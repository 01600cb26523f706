// The messages that a step took out of a conversation, as `Compact` and `ClearResults` do, and what stands in their place.
import { messageElement } from "./call_panels.js";
import { make } from "./elements.js";
import { counted, visible } from "./texts.js";

/** @import { Child } from "./elements.js" */
/** @import { RunData } from "./run_data.js" */
/** @typedef {Record<string, any>} Message */

/** @param {RunData} data @param {number} index @returns {Child[]} */
export function replacedPanel(data, index) {
  const patch = Object.entries(data.steps[index].patch ?? {}).filter(([, [how, value]]) => how === "=" && isTalk(value));
  const before = patch.length ? data.stateBefore(index) : null;
  return patch.map(([field, [, after]]) => {
    const gone = isTalk(before?.[field]) ? without(before?.[field], after) : [];
    if (!gone.length) return null;
    const fresh = without(after, before?.[field]), [first] = fresh;
    const one = fresh.length === 1 ? element(first) : null;
    return [
      make("h3", {}, "Replaced in ", make("span", { class: "data" }, visible(field))), one,
      fresh.length > 1 ? folded(counted(fresh.length, "message") + " in their place", fresh) : null,
      folded(counted(gone.length, "message") + " before", gone),
    ];
  }).flat();
}

/** @param {string} title @param {Message[]} messages */
function folded(title, messages) {
  return make("details", {}, make("summary", {}, title), messages.map(element));
}

/** @param {Message} message */
function element(message) {
  const full = Object.entries(message).filter(([, value]) => value && (typeof value !== "object" || Object.keys(value).length));
  return messageElement(Object.fromEntries(full.filter(([name, value]) => !(name === "data" && (value.summary_of || value.cleared)))));
}

/** @param {any} value */
function isTalk(value) { return Array.isArray(value) && value.length > 0 && value.every((one) => one && typeof one.role === "string"); }

/** The messages that are not among others, of which each stands for one. @param {Message[]} messages @param {Message[]} others */
function without(messages, others) {
  /** @type {Map<string, number>} */
  const left = new Map();
  for (const text of others.map((one) => JSON.stringify(one))) left.set(text, (left.get(text) ?? 0) + 1);
  return messages.filter((one) => {
    const text = JSON.stringify(one), count = left.get(text) ?? 0;
    left.set(text, count - 1);
    return count <= 0;
  });
}
