// An edge of the picture: when it was taken and why, and when it was not.
import { empty, make } from "./elements.js";
import { guardOf } from "./step_panel.js";
import { counted, number, visible } from "./texts.js";

/** @import { Children } from "./elements.js" */
/** @import { RunData } from "./run_data.js" */

const MOST = 200;

/**
 * @param {RunData} data
 * @param {string} edge
 * @param {{ step: (index: number) => void, close: () => void }} act
 * @returns {Children[]}
 */
export function edgePanel(data, edge, act) {
  const { took, left } = data.edge(edge), began = data.run.began[edge] ?? [];
  const times = took.length + began.length;
  return [
    make("div", { class: "above" }, make("h2", { class: "data" }, visible(data.run.edges[edge] ?? edge)), make("button", { type: "button", onclick: act.close }, "Back to the step")),
    make("p", { class: "note" }, (times ? "Taken " + counted(times, "time") : "Never taken") + (left.length ? ", and not taken " + counted(left.length, "time") : "") + "."),
    began.length ? [make("h3", {}, "Taken without a step"), make("p", { class: "said" }, "Its graph began, or a limit was spent: record " + began.slice(0, MOST).join(", ") + (began.length > MOST ? ", …" : ""))] : null,
    took.length ? [make("h3", {}, "Taken after"), steps(data, took, edge, act.step)] : null,
    left.length ? [make("h3", {}, "Not taken after"), steps(data, left, edge, act.step)] : null,
    times || left.length ? null : empty("No step has come to where it begins."),
  ];
}

/** @param {RunData} data @param {number[]} found @param {string} edge @param {(index: number) => void} choose */
function steps(data, found, edge, choose) {
  const shown = found.slice(0, MOST).map((index) => {
    const step = data.steps[index];
    return make("li", {},
      make("button", { type: "button", class: "link", onclick: () => choose(index) }, "step " + number(index + 1), " ", make("span", { class: "data" }, visible(step.name.slice(0, 2).join(" ")))),
      make("span", { class: "note" }, " at " + data.clock(step.t[1] ?? data.span) + ", record " + step.seq), guardOf(data, step, edge),
      step.went ? make("div", { class: "data why" }, visible(step.went)) : null);
  });
  return [make("ul", { class: "edges" }, shown), found.length > MOST ? empty(number(found.length - MOST) + " more") : null];
}
