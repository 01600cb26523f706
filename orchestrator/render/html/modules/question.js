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
  const { answer, call } = asked;
  const shown = Object.entries(asked.shown ?? {}).filter(([, value]) => value !== asked.prompt);
  const late = answer?.type === "deny" && asked.kind in ENDS;
  const ended = late ? ENDS[asked.kind] : answered(asked);
  const said = answer ? ended + (asked.by && !late ? " by " + visible(asked.by) : "") + " (record " + asked.answered + ")" : "open";
  const repeats = call && calls.some((one) => one.name === call.tool && JSON.stringify(one.args ?? {}) === JSON.stringify(answer?.args ?? call.args ?? {}));
  const { title, outcomes } = asked, given = answer?.args ?? answer?.reason ?? (outcomes ? answer?.value?.result : answer?.value);
  return make("div", { class: "message" },
    make("div", { class: "role" }, make("span", {}, title ?? (asked.kind in ENDS ? "waits for: " : "question: ") + asked.kind), make("span", {}, said)),
    make("div", { class: "text" }, visible(asked.prompt)),
    call && !repeats ? called(call, outcomes ? ["why"] : []) : null,
    shown.length ? make("div", { class: "shown beside" }, call ? make("div", { class: "name" }, "Shown with it") : null, fields(Object.fromEntries(shown))) : null,
    outcomes ? make("div", { class: "text" }, visible(answer ? outcomes[answer.value?.choice] ?? "" : Object.values(outcomes).join("\n"))) : null,
    answer && !late && !repeats && given !== undefined && given !== "" ? block(given) : null);
}

/**
 * The call that a question is about. Texts keep their lines, so that people can read what they approve.
 * @param {Record<string, any>} call
 * @param {string[]} hidden  What the prompt says.
 */
function called({ args, ...others }, hidden) {
  const facts = Object.entries(others).filter(([name]) => !hidden.includes(name));
  return make("div", { class: "shown" }, described(facts.filter(([, value]) => typeof value === "string")), fields(args ?? {}),
    facts.filter(([, value]) => typeof value !== "string").map(([name, value]) => [make("div", { class: "name data" }, visible(name)), block(value)]));
}

/** Arguments, or what is shown beside a call. @param {any} values */
function fields(values) {
  return Object.entries(values).map(([name, value]) => make("div", { class: "field" }, make("div", { class: "name data" }, visible(name)), block(value)));
}

/** @param {Asked} asked */
function answered(asked) {
  if (asked.answer?.type === "approve") return "approved";
  if (asked.answer?.type === "deny") return "denied";
  return asked.kind === "event" ? "received" : "answered";
}
