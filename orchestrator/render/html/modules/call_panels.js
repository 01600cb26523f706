// The calls of a step: conversations with models, and tools with their arguments and results.
import { block, empty, make } from "./elements.js";
import { questionElement } from "./question.js";
import { lasting, number, pretty, spent, visible } from "./texts.js";

/** @import { Children } from "./elements.js" */
/** @import { RunData } from "./run_data.js" */
/** @import { Call } from "./types.js" */

const MOST = 6;

/** @param {RunData} data @param {number} index @returns {Children[]} */
export function modelPanel(data, index) {
  const calls = (data.steps[index].calls ?? []).filter((call) => call.kind === "model");
  if (!calls.length) return [empty("No model was asked in this step.")];
  return calls.map((call) => {
    const offer = call.offer ? data.run.offers[call.offer] : null, reply = call.result;
    const messages = (call.messages ?? []).map((name) => messageElement(data.run.messages[name]));
    const old = Math.max(0, messages.length - MOST);
    return [
      callHead(call),
      old ? make("details", {}, make("summary", {}, number(old) + " messages before"), messages.slice(0, old)) : null,
      ...messages.slice(old),
      call.error ? make("p", { class: "bad data" }, visible(call.error)) : null,
      reply ? messageElement({ role: "reply", ...reply }, "reply") : null,
      offer ? make("details", {}, make("summary", {}, number(offer.length) + " tools were offered: " + visible(offer.map(toolName).join(", "))), block(offer)) : null,
      call.options ? make("details", {}, make("summary", {}, "Options"), block(call.options)) : null,
    ];
  });
}

/** @param {RunData} data @param {number} index @returns {Children[]} */
export function toolsPanel(data, index) {
  const step = data.steps[index], calls = (step.calls ?? []).filter((call) => call.kind !== "model");
  if (!calls.length && !step.asked?.length) return [empty("No tool was called in this step.")];
  return [(step.asked ?? []).map((asked) => questionElement(asked, calls)), ...calls.map(toolCall)];
}

/** @param {Call} call @returns {Children} */
function toolCall(call) {
  const { result } = call, output = result?.output ?? result;
  const code = result?.exit_code ? "exit code " + result.exit_code : null;
  const faults = [...new Set([call.error, result?.error ?? code].filter(Boolean).map(pretty))].filter((fault) => fault !== pretty(output));
  const failed = Boolean(result?.error) && pretty(result?.error) === pretty(output);
  return [
    callHead(call), make("h3", {}, "Arguments"), block(call.args ?? {}),
    result !== undefined && output !== undefined && output !== result?.error ? [make("h3", {}, "Result"), block(output)] : null,
    (call.images ?? []).map((url, place) => make("img", { class: "shot", src: url, alt: "Picture " + (place + 1) + " of " + visible(call.name) })),
    (failed ? [pretty(output)] : faults).map((fault) => make("p", { class: "bad data" }, fault)),
  ].flat();
}

/** @param {any} message @param {string} kind */
export function messageElement(message, kind = "") {
  if (!message) return empty("A message that the journal does not hold.");
  const { role, content, text, tool_calls: calls, usage, extras, parsed, finish, model, ...rest } = message;
  const said = content ?? text, thought = extras?.reasoning_content ?? extras?.reasoning;
  const repeats = rest.data && !rest.data.error && pretty(rest.data.output ?? "") === pretty(said ?? "");
  const more = Object.entries(rest).filter(([name, value]) => value && !["tool_call_id", "name", "digest"].includes(name) && !(repeats && name === "data"));
  const from = rest.name ?? rest.tool_call_id ?? [model, finish].filter(Boolean).join(", ");
  return make("div", { class: "message " + kind + " from-" + (["system", "user", "assistant", "tool", "reply"].includes(role) ? role : "other") },
    make("div", { class: "role" }, make("span", {}, visible(role ?? "")), make("span", { class: "data" }, visible(from))),
    thought ? make("details", {}, make("summary", {}, "Thoughts"), make("div", { class: "text" }, visible(thought))) : null,
    said ? make("div", { class: "text" }, pretty(said)) : null,
    (calls ?? []).map((/** @type {any} */ call) => make("div", { class: "text" }, "→ " + visible(call.name ?? ""), block(call.arguments ?? call.raw ?? {}))),
    parsed && !sameJson(said, parsed) ? block(parsed) : null,
    more.length ? block(Object.fromEntries(more)) : null);
}

/** Whether a text is the JSON of a value. @param {any} text @param {any} value */
function sameJson(text, value) {
  if (typeof text !== "string") return false;
  try { return JSON.stringify(JSON.parse(text)) === JSON.stringify(value); } catch { return false; }
}

/** @param {Call} call */
function callHead(call) {
  const bad = call.failed || call.ok === false;
  const state = call.unknown ? "it is not known whether it happened" : bad ? "failed" : call.ok === true ? "done" : "not settled";
  const time = call.t[1] === null || call.t[1] === undefined ? "" : lasting((call.t[1] - call.t[0]) / 1000);
  const more = [state, call.effect, time, spent(call.usage), call.tries ? call.tries + " tries" : null, call.inside ? "inside " + visible(call.inside) : null, "record " + call.seq + (call.settled ? " – " + call.settled : "")];
  return make("h3", { class: "call" }, make("span", { class: "pill " + (bad ? "failed" : "") }, call.kind), " ", make("span", { class: "data" }, visible(call.name)),
    make("span", { class: "note" }, "  " + more.filter(Boolean).join(", ")));
}

/** @param {any} tool */
function toolName(tool) { return tool.name ?? tool.function?.name ?? "?"; }
