// @ts-check
// What a fork would reuse, make again and ask about, in words.

import { make } from "./elements.js";
import { counted, money, number } from "./modules/texts.js";
import { root } from "./api.js";

const MOST = 8; // lines of one kind; further ones are counted

/** @param {any} found the preview of the server @returns {HTMLElement[]} */
export function effectList(found) {
  const { inherited: used } = found, tokens = used.input_tokens + used.output_tokens;
  const spent = [tokens ? `${number(tokens)} tokens` : "", used.cost ? `cost ${money(used.cost)}` : ""].filter(Boolean).join(", ");
  const settled = found.steps || found.calls ? `${counted(found.steps, "step")} and ${counted(found.calls, "call")} are reused and not made again${spent ? `; their usage counts against the limits (${spent})` : ""}.` : "Nothing was settled by then.";
  const repeated = found.open_calls.filter((/** @type {any} */ one) => one.became === "repeated");
  const reused = found.open_calls.filter((/** @type {any} */ one) => one.became === "reused");
  return [
    make("h3", {}, "What the fork does"),
    make("ul", {},
      line("keep", settled),
      some(reused, (one) => line("keep", `The step that goes on has the result of ${name(one)} (record ${number(one.seq)}), if it asks for the same again.`)),
      some(found.done, (one) => line("keep", `${name(one)} cannot be undone and was done (record ${number(one.seq)}): it is not done again.`)),
      some(repeated, (one) => line("again", `${name(one)} had no result that counts (record ${number(one.seq)}): it counts as not made.`)),
      some(found.asks, (one) => make("li", { class: "ask" }, `Asks before it calls ${one.name} again: run `, make("a", { href: `${root}/runs/${encodeURIComponent(one.run_id)}#seq=${one.seq}` }, one.run_id), ` ${became(one)} (record ${number(one.seq)}) with ${cut(one.args)}.`)),
      found.irreversible.length ? line("ask", `Asks before each call of ${found.irreversible.join(", ")}: it cannot be undone.`) : null,
      !found.asks.length && !found.irreversible.length ? line("keep", "No tool that may be called ahead is irreversible, and no run of the family made an irreversible call that this one has not.") : null,
      found.withdrawn ? line("ask", `${counted(found.withdrawn, "approval")} of the run had no call yet, and counts no more: the fork asks again.`) : null,
      found.deleted.length ? line("ask", `What ${found.deleted.join(", ")} did is not known: deleted.`) : null,
      some(found.changes, (one) => line("again", one)),
      found.left_out ? line("again", `${number(found.left_out)} more calls are not listed.`) : null),
  ];
}

/** The same on one line. @param {any} found */
export function effectSum(found) {
  const asks = [...new Set([...found.irreversible, ...found.asks.map((/** @type {any} */ one) => one.name)])];
  return `Reuses ${counted(found.steps, "step")}, ${counted(found.calls, "call")}${asks.length ? `; asks before ${cut(asks.join(", "))}` : ""}.`;
}

/** @param {any[]} list @param {(one: any) => HTMLElement} write @returns {HTMLElement[]} */
function some(list, write) {
  return [...list.slice(0, MOST).map(write), ...(list.length > MOST ? [line("again", `… and ${number(list.length - MOST)} more.`)] : [])];
}

/** @param {string} kind @param {string} text */
function line(kind, text) { return make("li", { class: kind }, text); }

/** @param {any} one */
function name(one) { return one.kind === "model" ? "the model" : one.name; }

/** @param {any} one */
function became(one) { return { returned: "called it", failed: "called it, and it failed", unknown: "may have called it" }[/** @type {string} */ (one.status)]; }

/** @param {string} text */
function cut(text) { return text.length > 160 ? `${text.slice(0, 159)}…` : text; }
