// Why a step ran, where it led, and what happened to it.
import { described, make } from "./elements.js";
import { questionElement } from "./question.js";
import { replacedPanel } from "./replaced.js";
import { looksOf, sign, WAITS } from "./step_look.js";
import { counted, lasting, spent, visible } from "./texts.js";
import { tracebackElement } from "./traceback.js";

/** @import { Children } from "./elements.js" */
/** @import { RunData } from "./run_data.js" */
/** @import { Step } from "./types.js" */

/**
 * @param {RunData} data
 * @param {number} index
 * @param {(edge: string) => void} pick  An edge was clicked on.
 * @returns {Children[]}
 */
export function stepPanel(data, index, pick) {
  const step = data.steps[index], { run } = data, [what, about, where] = step.name;
  const edges = (/** @type {string[]} */ names, /** @type {string} */ kind) => names.map((name) =>
    make("p", { class: kind + " data" }, make("button", { type: "button", class: "link", onclick: () => pick(name) }, visible(run.edges[name] ?? name)), guardOf(data, step, name)));
  const map = step.map ? run.maps[step.map[0]] : null;
  return [
    make("h2", {}, sign(looksOf(step)), " ", make("span", { class: "data" }, visible(what)), about ? make("span", { class: "about data" }, " " + visible(about)) : null, " ", make("span", { class: "pill " + looksOf(step) }, stateOf(step))),
    step.error ? make("p", { class: "bad data" }, visible(step.error)) : null, tracebackElement(step.trace),
    (step.retries ?? []).map(([attempt, error, trace]) => [make("p", { class: "bad data" }, "Attempt " + attempt + ": " + visible(error)), tracebackElement(trace)]),
    (step.asked ?? []).map((asked) => questionElement(asked)),
    make("h3", {}, "Why here?"),
    make("p", { class: "said data" }, visible(step.came)),
    step.went ? [make("h3", {}, "And then?"), make("p", { class: "said data" }, visible(step.went))] : null,
    edges(step.took ?? [], "took"), edges(step.left ?? [], "not"), replacedPanel(data, index),
    described([
      ["node", step.node + (run.kinds[step.part] ? ", " + run.kinds[step.part] : "")], ["inside", where],
      ["item", map && step.map ? (step.map[1] + 1) + " of " + map.count + " in " + map.each : null],
      ["branch", step.path], ["attempt", step.attempt], ["worked", lasting(step.work)], ["waited", waited(data, step)],
      ["records", step.began + " – " + (step.seq ?? "still open")],
      ["began", "at " + lasting(step.t[0] / 1000) + ", " + new Date(run.start * 1000 + step.t[0]).toLocaleString()],
      ["calls", step.calls?.length], ["tokens", spent(step.usage)],
    ]),
  ];
}

/** @param {Step} step */
function stateOf(step) {
  const calls = step.failed ? counted(step.failed, "call") + " failed" : null;
  return [visible(step.outcome ?? step.status), step.unasked, calls, step.cached ? "from cache" : null].filter(Boolean).join(", ");
}

/** @param {RunData} data @param {Step} step */
function waited(data, step) {
  /** @type {Record<string, number>} */
  const sums = {};
  for (const [why, from, to] of step.waits ?? []) sums[why] = (sums[why] ?? 0) + ((to ?? data.span) - from) / 1000;
  return Object.entries(sums).map(([why, seconds]) => lasting(seconds) + " (" + WAITS[why] + ")").join(", ");
}

/**
 * The value of an edge's guard in a step, if it has one.
 * @param {RunData} data @param {Step} step @param {string} edge
 */
export function guardOf(data, step, edge) {
  const outcome = / : ([^\s]+)/.exec(data.run.edges[edge] ?? "")?.[1];
  const value = outcome === undefined ? undefined : step.guards?.[outcome];
  return value === undefined ? null : make("span", { class: "guard" }, " guard: " + visible(value));
}
