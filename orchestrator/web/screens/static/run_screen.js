// @ts-check
// One run, live: the page of a run with a source that follows it, and the reply under way above it.

import { root } from "./api.js";
import { byId } from "./elements.js";
import { Family } from "./fork_family.js";
import "./finder.js";
import { LiveSource } from "./live_source.js";
import { openPage } from "./modules/page.js";
import { visible } from "./modules/texts.js";
import { RunQuestions } from "./run_questions.js";
import { offerReturn } from "./try_return.js";

/** @import { RunEvent } from "./live_source.js" */

const MOST = 600; // characters of a reply under way that are shown: its end
/** @type {Map<string, {node: string, text: string, activation: string}>} */
const replies = new Map(); // key of a call -> its reply so far

/** Keep the replies under way; what a record says of one ends it. @param {RunEvent} event */
function take(event) {
  const key = event.key ?? "";
  if (event.type === "token") {
    const reply = replies.get(key) ?? { node: event.node ?? "", text: "", activation: event.activation };
    replies.set(key, { ...reply, text: (reply.text + event.text).slice(-MOST) });
  } else if (event.type === "reset" || event.type === "effect_settled" || event.type === "step_retried" || event.type === "step_failed" || event.type === "step_done") {
    for (const [one, reply] of replies) if (one === key || (!key && reply.activation === event.activation)) replies.delete(one);
  } else if (event.type === "ended") {
    replies.clear();
  } else return;
  requestAnimationFrame(draw);
}

function draw() {
  const last = [...replies.values()].at(-1);
  byId("reply").hidden = !last;
  byId("reply-node").textContent = last ? visible(last.node) : "";
  byId("reply-text").textContent = last ? visible(last.text) : "";
}

/** @type {Record<string, string>} */
const SCREENS = { r: "runs", i: "inbox", w: "workers", g: "graphs", c: "costs" }; // the key after g -> where it leads
offerReturn();
let before = "";
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || (event.target instanceof HTMLElement && event.target.matches("input, textarea, select")) || document.querySelector("dialog[open]")) return;
  if (before === "g" && event.key in SCREENS) location.assign(`${root}/${SCREENS[event.key]}`);
  before = event.key;
}, true);
byId("keys-open").addEventListener("click", () => document.dispatchEvent(new KeyboardEvent("keydown", { key: "?", bubbles: true })));

const runId = document.body.dataset.run ?? "", readOnly = document.body.hasAttribute("data-read-only");
const questions = new RunQuestions(runId, readOnly), family = new Family(runId, byId("family"));
byId("a-why").after(byId("family"));
const source = new LiveSource(runId, JSON.parse(byId("data").textContent ?? "{}"), {
  event: take,
  deleted: (text) => { questions.close(text); family.over = true; },
  opened: () => { replies.clear(); draw(); }, // the stream begins with what there is of them
  connected: (there) => { byId("link").textContent = there ? "" : "Connection lost: the server does not answer. Trying again …"; },
  readOnly,
});
void openPage([source], (run) => { void questions.show(run); }, [
  ["a d e", "approve, deny, edit the first call that waits"], ["g r", "the runs"], ["g i", "the inbox"], ["g w", "the workers"], ["g g", "the graphs"], ["g c", "the costs"], ["Ctrl K", "find a run, a screen or an action"],
]);
