// A question of a step, with its answer: what was asked, what was said, by whom.
import { block, described, make } from "./elements.js";
import { visible } from "./texts.js";

/** @import { Asked, Call } from "./types.js" */

/** @type {Record<string, string>} */
const ENDS = { timer: "the time came", event: "none came in time" };

/**
 * @param {Asked} asked
 * @param {Call[]} calls  Calls that are shown beside it: their arguments are not repeated.
 */
export function questionElement(asked, calls = []) {
  const { answer, payload } = asked;
  const late = answer?.type === "deny" && asked.kind in ENDS;
  const ended = late ? ENDS[asked.kind] : answered(asked);
  const said = answer ? ended + (asked.by && !late ? " by " + visible(asked.by) : "") + " (record " + asked.answered + ")" : "open";
  const repeats = payload?.tool && calls.some((call) => call.name === payload.tool && JSON.stringify(call.args ?? {}) === JSON.stringify(answer?.args ?? payload.args ?? {}));
  const { title, outcomes } = asked, given = answer?.args ?? answer?.reason ?? (outcomes ? answer?.value?.result : answer?.value);
  return make("div", { class: "message" },
    make("div", { class: "role" }, make("span", {}, title ?? (asked.kind in ENDS ? "waits for: " : "question: ") + asked.kind), make("span", {}, said)),
    make("div", { class: "text" }, visible(asked.prompt)),
    payload && !repeats ? shown(payload, outcomes ? ["why"] : []) : null,
    outcomes ? make("div", { class: "text" }, visible(answer ? outcomes[answer.value?.choice] ?? "" : Object.values(outcomes).join("\n"))) : null,
    answer && !late && !repeats && given !== undefined && given !== "" ? block(given) : null);
}

/**
 * What a question shows. Texts keep their lines, so that people can read what they approve.
 * @param {any} payload
 * @param {string[]} [hidden]  What the prompt says.
 */
function shown(payload, hidden = []) {
  if (typeof payload !== "object" || Array.isArray(payload)) return block(payload);
  const { tool, args, ...others } = payload, rest = Object.fromEntries(Object.entries(others).filter(([name]) => !hidden.includes(name)));
  const facts = tool ? { tool, ...rest } : {}, fields = tool ? args ?? {} : payload;
  return make("div", { class: "shown" }, Object.keys(facts).length ? described(Object.entries(facts).filter(([, value]) => typeof value === "string")) : null,
    Object.entries(fields).map(([name, value]) => make("div", { class: "field" }, make("div", { class: "name data" }, visible(name)), block(value))),
    Object.entries(facts).filter(([, value]) => typeof value !== "string").map(([name, value]) => [make("div", { class: "name data" }, visible(name)), block(value)]));
}

/** @param {Asked} asked */
function answered(asked) {
  if (asked.answer?.type === "approve") return "approved";
  if (asked.answer?.type === "deny") return "denied";
  return asked.kind === "event" ? "received" : "answered";
}
