// @ts-check
// One run, live: the page of a run with a source that follows it, and the reply under way above it.

import { root } from "./api.js";
import { ChatBox } from "./chat_box.js";
import { byId } from "./elements.js";
import { Family } from "./fork_family.js";
import "./finder.js";
import { LiveSource } from "./live_source.js";
import { openPage } from "./modules/page.js";
import { visible } from "./modules/texts.js";
import { RunEvents } from "./run_events.js";
import { RunQuestions } from "./run_questions.js";
import { offerReturn } from "./try_return.js";

/** @import { RunEvent } from "./live_source.js" */
/** @import { RunDocument } from "./modules/types.js" */
/** @import { RunView } from "./modules/view.js" */

const MOST = 600; // characters of a reply under way that are shown above the page: its end
const KEPT = 50_000; // and in the transcript
/** @typedef {{node: string, text: string, activation: string, until: number}} Reply  `until`: the record that has it; 0: it comes. */
/** @type {Map<string, Reply>} */
const replies = new Map(); // key of a call -> its reply so far
/** @type {RunView | null} */
let view = null;

/** Keep the replies under way; what a record says of one ends it. @param {RunEvent} event */
function take(event) {
  const key = event.key ?? "";
  if (event.type === "token") {
    const reply = replies.get(key) ?? { node: event.node ?? "", text: "", activation: event.activation, until: 0 };
    replies.set(key, { ...reply, text: (reply.text + event.text).slice(-KEPT) });
  } else if (event.type === "effect_settled" && replies.has(key)) {
    const reply = /** @type {Reply} */ (replies.get(key));
    replies.set(key, { ...reply, until: event.seq ?? 0 }); // the transcript keeps it until the page has the record
  } else if (event.type === "reset" || event.type === "effect_settled" || event.type === "step_retried" || event.type === "step_failed" || event.type === "step_done") {
    for (const [one, reply] of replies) if (one === key || (!key && !reply.until && reply.activation === event.activation)) replies.delete(one);
  } else if (event.type === "ended") {
    replies.clear();
  } else return;
  requestAnimationFrame(draw);
}

function draw() {
  const last = [...replies.values()].filter((one) => !one.until).at(-1), there = view?.talk.shown;
  if (there) view?.talk.stream([...replies.values()]);
  byId("reply").hidden = !last || Boolean(there);
  byId("reply-node").textContent = last ? visible(last.node) : "";
  byId("reply-text").textContent = last ? visible(last.text.slice(-MOST)) : "";
}

/** @type {Record<string, string>} */
const SCREENS = { r: "runs", i: "inbox", w: "workers", g: "graphs", e: "compose", c: "costs" }; // the key after g -> where it leads
offerReturn();
let before = "";
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || (event.target instanceof HTMLElement && event.target.matches("input, textarea, select")) || document.querySelector("dialog[open]")) return;
  if (before === "g" && event.key in SCREENS) location.assign(`${root}/${SCREENS[event.key]}`);
  before = event.key;
}, true);
byId("keys-open").addEventListener("click", () => document.dispatchEvent(new KeyboardEvent("keydown", { key: "?", bubbles: true })));

const runId = document.body.dataset.run ?? "", readOnly = document.body.hasAttribute("data-read-only");
const events = new RunEvents(runId, readOnly), questions = new RunQuestions(runId, readOnly), family = new Family(runId, byId("family"));
byId("a-why").after(byId("family"));
const source = new LiveSource(runId, JSON.parse(byId("data").textContent ?? "{}"), {
  event: take,
  deleted: (text) => { questions.close(text); family.over = true; },
  opened: () => { replies.clear(); draw(); }, // the stream begins with what there is of them
  connected: (there) => { byId("link").textContent = there ? "" : "Connection lost: the server does not answer. Trying again …"; },
  readOnly,
  sources: document.body.hasAttribute("data-sources"),
});
/** @type {ChatBox | null} */
let chat = null;
/** What is shown of the run has changed. @param {RunDocument} run */
function shown(run) {
  for (const [key, { until }] of replies) if (until && until <= run.head) replies.delete(key);
  draw();
  void questions.show(run).then(() => chat?.show(run));
  void events.show(run);
}
void openPage([source], shown, [
  ["a d e", "approve, deny, edit the first call that waits"], ["g r", "the runs"], ["g i", "the inbox"], ["g w", "the workers"], ["g g", "the graphs"], ["g e", "the editor of graphs"], ["g c", "the costs"], ["Ctrl K", "find a run, a screen or an action"],
]).then((page) => {
  [view] = page.views;
  chat = new ChatBox(view.talk, questions, readOnly);
  chat.show(view.data.run);
});
