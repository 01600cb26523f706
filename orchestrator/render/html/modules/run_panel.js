// The whole run: its output, what each node used, its labels, its last state.
import { block, make } from "./elements.js";
import { fieldList } from "./state_panel.js";
import { lasting, money, number, visible } from "./texts.js";
import { tracebackElement } from "./traceback.js";

/** @import { Children } from "./elements.js" */
/** @import { RunData } from "./run_data.js" */

const HEAD = ["node", "steps", "summed", "elapsed", "calls", "tokens in", "out", "cost"];

/** @param {RunData} data @returns {Children[]} */
export function runPanel(data) {
  const { run } = data;
  return [
    run.error ? make("p", { class: "bad data" }, visible(run.error)) : null, tracebackElement(run.trace),
    run.waiting.map((question) => make("p", { class: "said data" }, "waits: " + visible(question))),
    make("h3", {}, "By node"), make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "By node" }, nodeTable(data)),
    make("p", { class: "note" }, "Summed: the working times of all steps added up. Elapsed: from the first beginning to the last end."),
    run.output !== null ? [make("h3", {}, "Output"), block(run.output)] : null,
    run.archived ? [make("h3", {}, "Archive"), make("p", { class: "data" }, visible(run.archived))] : null,
    Object.keys(run.labels).length ? [make("h3", {}, "Labels"), block(run.labels)] : null,
    make("h3", {}, "State at the end"), fieldList(run.final),
  ];
}

/** @param {RunData} data */
function nodeTable(data) {
  /** @type {Map<string, number[]>} */
  const nodes = new Map();
  data.steps.forEach((step, index) => {
    const name = (step.part || step.node).replace(/^node-/, "");
    const known = nodes.get(name);
    if (known) known.push(index);
    else nodes.set(name, [index]);
  });
  const rows = [...nodes].map(([name, indices]) => {
    const steps = indices.map((index) => data.steps[index]);
    const sum = (/** @type {(step: typeof steps[0]) => number | undefined} */ of) => steps.reduce((total, step) => total + (of(step) ?? 0), 0);
    const cells = [number(steps.length), lasting(sum((step) => step.work)), lasting(data.elapsed(indices)), number(sum((step) => step.calls?.length)),
      number(sum((step) => step.usage?.in)), number(sum((step) => step.usage?.out)), money(sum((step) => step.usage?.cost))];
    return make("tr", {}, make("th", { scope: "row", class: "data" }, visible(name)), cells.map((cell) => make("td", { class: "n" }, cell)));
  });
  return make("table", {}, make("thead", {}, make("tr", {}, HEAD.map((name, at) => make("th", { scope: "col", class: at ? "n" : null }, name)))), make("tbody", {}, rows));
}
