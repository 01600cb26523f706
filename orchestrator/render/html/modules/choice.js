// What a reader looks for among steps: an order, words, and those that were slow, failed, denied or retried.
import { denied, looksOf } from "./step_look.js";

/** @import { Step } from "./types.js" */
/** @typedef {"slow" | "failed" | "denied" | "retried"} Trait */
/** @typedef {"order" | "duration" | "tokens" | "cost"} Order */

/**
 * What to show.
 * @typedef {object} Choice
 * @property {Order} order
 * @property {Trait[]} only  Steps that have one of them.
 * @property {string} kind  Kind of node; empty: any.
 * @property {string} text  Words that all occur.
 */

/** @type {Order[]} */
export const ORDERS = ["order", "duration", "tokens", "cost"];

/** @returns {Choice} */
export function everything() { return { order: "order", only: [], kind: "", text: "" }; }

/** @type {Trait[]} */
export const TRAITS = ["slow", "failed", "denied", "retried"];
const SLOW = 20;

/** What makes a step slow, failed, denied, retried. @param {Step[]} steps */
export function traitsOf(steps) {
  const times = steps.map((step) => step.work).filter((work) => work > 0).sort((one, other) => other - one);
  const least = times[Math.min(SLOW, Math.ceil(times.length / 10)) - 1] ?? Infinity;
  return {
    slow: (/** @type {Step} */ step) => step.work >= least && step.work > 0,
    failed: (/** @type {Step} */ step) => ["failed", "faulty"].includes(looksOf(step)),
    denied,
    retried: (/** @type {Step} */ step) => (step.attempt ?? 1) > 1 || (step.retries ?? []).length > 0,
  };
}
