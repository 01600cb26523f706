// How a step looks: its state as a sign and a colour, and its waits in words.
import { make } from "./elements.js";

/** @import { Step } from "./types.js" */

/** @type {Record<string, string>} */
const SIGNS = { done: "✓", passed: "»", faulty: "!", failed: "✗", waiting: "‖", running: "▸", interrupted: "▹", queued: "▹", dropped: "⊘" };

/** @type {Record<string, string>} */
export const WAITS = { person: "waited for an answer", event: "waited for an event", timer: "waited for a time", retry: "waited for another attempt", stopped: "no process drove the run" };

/**
 * A step that failed looks like it also where an edge took that and the run went on.
 * @param {Step} step
 */
export function looksOf(step) {
  if (step.status !== "done") return step.status;
  if (step.error && step.outcome !== "exhausted") return "failed";
  return step.failed ? "faulty" : step.unasked ? "passed" : "done";
}

/** @param {string} look */
export function sign(look) {
  const says = look === "faulty" ? "done, a call failed" : look;
  return make("span", { class: "mark " + look, "aria-label": says, title: says, role: "img" }, SIGNS[look] ?? "");
}

/**
 * Whether an answer to the step, or to a call in it, was no.
 * @param {Step} step
 */
export function denied(step) {
  return step.outcome === "denied" || (step.asked ?? []).some((asked) => asked.kind !== "timer" && asked.kind !== "event" && asked.answer?.type === "deny");
}
