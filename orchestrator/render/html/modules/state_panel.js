// The state of a step: what it changed, before, after.
import { added, differences } from "./differences.js";
import { block, empty, make } from "./elements.js";
import { pretty, visible } from "./texts.js";

/** @import { Children } from "./elements.js" */
/** @import { RunData } from "./run_data.js" */
/** @import { State, Step } from "./types.js" */
/** @typedef {"changes" | "before" | "after"} Way */

/** @type {[Way, string][]} */
const WAYS = [["changes", "Changes"], ["before", "Before"], ["after", "After"]];

/**
 * @param {RunData} data
 * @param {number} index
 * @param {Way} way
 * @param {{ name: string, choose: (way: Way) => void }} radio
 * @returns {Children[]}
 */
export function statePanel(data, index, way, radio) {
  const step = data.steps[index], before = data.stateBefore(index);
  if (before === null) return [empty("The journal does not hold the state of this step.")];
  const choose = make("div", { class: "choose", role: "radiogroup", "aria-label": "Which state" }, WAYS.map(([value, name]) =>
    make("label", {}, make("input", { type: "radio", name: radio.name, value, checked: value === way, onchange: () => radio.choose(value) }), " " + name)));
  if (way === "before") return [choose, fieldList(before)];
  if (way === "after") return [choose, fieldList(step.status === "done" ? data.stateAfter(index) ?? before : before)];
  return [choose, ...changes(data, index, before)];
}

/** @param {RunData} data @param {number} index @param {State} before @returns {Children[]} */
function changes(data, index, before) {
  const step = data.steps[index], wrote = Object.entries(step.patch ?? {});
  return [joined(data, index, step), wrote.map(([field, patch]) => changed(field, patch, before)),
    wrote.length ? null : empty(step.status === "done" ? "It changed nothing." : "It has not ended.")];
}

/** @param {RunData} data @param {number} index @param {Step} step @returns {Children} */
function joined(data, index, step) {
  const base = data.base(index), merged = Object.entries(step.merged ?? {});
  if (!merged.length || !base) return null;
  const beside = (step.base ?? -1) < 0 ? "the start" : "step " + ((step.base ?? 0) + 1);
  return [make("h3", {}, "What the join brought, beside " + beside), ...merged.map(([field, patch]) => changed(field, patch, base)), make("h3", {}, "What the step wrote")];
}

/** @param {State} state */
export function fieldList(state) {
  return make("div", {}, Object.entries(state).map(([name, value]) =>
    make("div", { class: "field" }, make("div", { class: "name data" }, visible(name)), block(value))));
}

/** @param {string} name @param {[string, any, ...any[]]} patch @param {State} before */
function changed(name, [how, value, gone], before) {
  const said = how === "+" ? "added to it" : how === "~" ? "changed keys" : name in before ? "" : "new";
  /** @type {import("./differences.js").Line[]} */
  let lines;
  if (how === "~") {
    const keys = Object.keys(value).concat(gone ?? []).filter((key) => key in (before[name] ?? {}));
    lines = differences(pretty(Object.fromEntries(keys.map((key) => [key, before[name][key]]))), pretty(value));
  } else if (how === "+" || !(name in before)) lines = pretty(value).split("\n").map(added);
  else lines = differences(pretty(before[name]), pretty(value));
  const kinds = { "+": "add", "-": "cut", " ": "" };
  return make("div", { class: "field" }, make("div", { class: "name" }, make("span", { class: "data" }, visible(name)), said ? make("span", { class: "how" }, "  " + said) : null),
    make("div", { class: "diff", tabindex: 0 }, lines.map(([kind, line]) => make("div", { class: kinds[kind] }, line))));
}
