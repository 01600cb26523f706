// The calls of a step: conversations with models, and tools with their arguments and results.
import { block, empty, make } from "./elements.js";
import { questionElement } from "./question.js";
import { lasting, number, pretty, spent, visible } from "./texts.js";
import { tracebackElement } from "./traceback.js";

/** @import { Children } from "./elements.js" */
/** @import { RunData } from "./run_data.js" */
/** @import { Call } from "./types.js" */

const MOST = 6;

/** @param {RunData} data @param {number} index @param {(seq: number) => void} change  Try a call with another request. @returns {Children[]} */
export function modelPanel(data, index, change) {
  const calls = (data.steps[index].calls ?? []).filter((call) => call.kind === "model");
  if (!calls.length) return [empty("No model was asked in this step.")];
  return calls.map((call) => {
    const offer = call.offer ? data.run.offers[call.offer] : null, reply = call.result;
    const messages = data.messagesOf(call).map((message) => messageElement(message));
    const old = Math.max(0, messages.length - MOST);
    return [
      callHead(call),
      call.inside ? null : make("button", { type: "button", class: "change", title: "Run this step again with another request, in a new run", onclick: () => change(call.seq) }, "Try it changed"),
      call.replaced ? make("p", { class: "note" }, "This request was made in the run that was forked. The next one is made in its place here.") : null,
      old ? make("details", {}, make("summary", {}, number(old) + " messages before"), messages.slice(0, old)) : null,
      ...messages.slice(old),
      call.error ? make("p", { class: "bad data" }, visible(call.error)) : null, tracebackElement(call.trace),
      call.replaced && call.instead ? messageElement({ role: "reply as it was", ...call.instead }, "reply") : null,
      reply ? besideElement(replacedBefore(calls, call), reply) : null,
      offer ? make("details", {}, make("summary", {}, number(offer.length) + " tools were offered: " + visible(offer.map(toolName).join(", "))), block(offer)) : null,
      call.options ? make("details", {}, make("summary", {}, "Options"), block(call.options)) : null,
    ];
  });
}

/** The reply to the request that a call was made in place of. @param {Call[]} calls @param {Call} call @returns {any} */
export function replacedBefore(calls, call) { return call.replaced ? undefined : calls.findLast((one) => one.replaced && one.seq < call.seq)?.instead; }

/** A reply; beside it the one to the request as it was. @param {any} was @param {any} reply */
function besideElement(was, reply) {
  const now = messageElement({ role: "reply", ...reply }, "reply");
  return was ? make("div", { class: "beside" }, messageElement({ role: "reply as it was", ...was }), now) : now;
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
    (failed ? [pretty(output)] : faults).map((fault) => make("p", { class: "bad data" }, fault)), tracebackElement(call.trace),
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
