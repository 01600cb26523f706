// @ts-check
// One run, live: the page of a run with a source that follows it, and the reply under way above it.

import { root } from "./api.js";
import { byId } from "./elements.js";
import "./finder.js";
import { LiveSource } from "./live_source.js";
import { openPage } from "./modules/page.js";
import { visible } from "./modules/texts.js";
import { RunQuestions } from "./run_questions.js";

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

let before = "";
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || (event.target instanceof HTMLElement && event.target.matches("input, textarea, select"))) return;
  if (before === "g" && event.key === "r") location.assign(`${root}/runs`);
  if (before === "g" && event.key === "i") location.assign(`${root}/inbox`);
  if (before === "g" && event.key === "w") location.assign(`${root}/workers`);
  before = event.key;
}, true);
byId("keys-open").addEventListener("click", () => document.dispatchEvent(new KeyboardEvent("keydown", { key: "?", bubbles: true })));

const runId = document.body.dataset.run ?? "", readOnly = document.body.hasAttribute("data-read-only");
const questions = new RunQuestions(runId, readOnly);
const source = new LiveSource(runId, JSON.parse(byId("data").textContent ?? "{}"), {
  event: take,
  deleted: (text) => questions.close(text),
  opened: () => { replies.clear(); draw(); }, // the stream begins with what there is of them
  connected: (there) => { byId("link").textContent = there ? "" : "Connection lost: the server does not answer. Trying again …"; },
  readOnly,
});
void openPage([source], (run) => { void questions.show(run); }, [
  ["a d e", "approve, deny, edit the first call that waits"], ["g r", "the runs"], ["g i", "the inbox"], ["g w", "the workers"], ["Ctrl K", "find a run, a screen or an action"],
]);
