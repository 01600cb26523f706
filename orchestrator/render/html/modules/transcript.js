// What was said in a run: messages, replies, calls with their results, questions with their answers. A long one is shown
// in parts, the newest first; each entry leads to its step, and those of the chosen step are marked. Of a run that the
// page does not have to its end yet, the entries behind that come from the server by themselves.
import { replacedBefore } from "./call_panels.js";
import { block, byId, empty, make } from "./elements.js";
import { questionElement } from "./question.js";
import { replacedPanel } from "./replaced.js";
import { counted, lasting, number, pretty, spent, visible } from "./texts.js";

/** @import { Child } from "./elements.js" */
/** @import { RunData } from "./run_data.js" */
/** @import { Growth } from "./run_growth.js" */
/** @import { Source } from "./source.js" */
/** @import { Asked, Call, Entry, RunDocument, Said } from "./types.js" */
/** @typedef {"graph" | "transcript"} View */
/** @typedef {{ node: string, text: string }} Piece  A reply under way. */

/** @type {View[]} */
export const VIEWS = ["graph", "transcript"];
const PART = 150; // entries that are shown at a time
const LONG = 700, LINES = 10; // characters and lines of a text that is shown whole
const NEAR = 60; // pixels from the end at which a reader counts as being there

/** What fits a graph: of one that asks people for texts the transcript. @param {RunDocument} run @returns {View} */
function usual(run) { return Object.values(run.kinds).includes("ask") ? "transcript" : "graph"; }

export class Transcript {
  /**
   * @param {string} prefix
   * @param {RunData} data
   * @param {Source["talk"]} ask  Gives entries that the data do not have yet.
   * @param {{ step: (index: number, seq: number) => void, change: (index: number, seq: number) => void, moved: () => void }} chosen
   */
  constructor(prefix, data, ask, chosen) {
    this.prefix = prefix;
    this.ask = ask;
    /** Entries behind those of the data, by their places. @type {Map<number, Entry>} */
    this.ahead = new Map();
    this.asked = 0; // how often the newest entries were asked for: another answer is out of date
    this.box = byId(prefix + "-talk");
    this.data = data;
    this.chosen = chosen;
    this.shown = false;
    /** @type {() => void} */
    this.looked = () => undefined; // called when it is shown or hidden
    /** The part that is shown: its first entry, and the one behind its last. */
    this.from = this.to = 0;
    this.index = -1;
    /** @type {Map<number, HTMLElement>} */
    this.elements = new Map();
    this.entries = make("div", { class: "entries", role: "log", "aria-label": "Messages" });
    this.live = make("div", { class: "live" });
    this.earlier = make("button", { type: "button", class: "link part", onclick: () => this.back() });
    this.later = make("button", { type: "button", class: "link part", onclick: () => this.move(this.from, this.to + PART) });
    this.none = empty("No model or tool was called yet, and no person was asked.");
    this.box.append(this.earlier, this.entries, this.later, this.none, this.live);
    for (const view of VIEWS) byId(prefix + "-view-" + view).addEventListener("click", () => this.look(view));
  }

  /** What is shown, if it is not what fits the graph. @returns {View | null} */
  get view() {
    const view = this.shown ? "transcript" : "graph";
    return view === usual(this.data.run) ? null : view;
  }

  /** Show the graph or the transcript. @param {View | null} chosen  null: what fits the graph. @param {boolean} quiet */
  look(chosen, quiet = false) {
    const view = chosen ?? usual(this.data.run), shown = view === "transcript";
    for (const one of VIEWS) byId(this.prefix + "-view-" + one).setAttribute("aria-pressed", String(one === view));
    if (shown !== this.shown) {
      this.shown = shown;
      this.box.hidden = !shown;
      byId(this.prefix + "-canvas").hidden = byId(this.prefix + "-sizes").hidden = shown;
      byId(this.prefix + "-panes").classList.toggle("talks", shown);
      if (shown) { this.redraw(); this.here(this.index, this.behind); if (this.behind) void this.newest(); }
      else this.ahead.clear();
    }
    this.looked();
    if (!quiet) this.chosen.moved();
  }

  /** Whether the run has more records than the data. */
  get behind() { return this.data.behind && this.ask !== null; }

  /** How many entries there are. */
  get count() { return Math.max(this.data.run.talk.length, Math.max(-1, ...this.ahead.keys()) + 1); }

  /** @param {number} at @returns {Said | undefined} */
  said(at) { return this.data.run.talk[at] ?? this.ahead.get(at)?.said; }

  /** Ask for the newest entries, which the data do not have yet, and show them. */
  async newest() {
    const asked = ++this.asked;
    this.none.hidden = true;
    const found = await this.get(0);
    if (!found || asked !== this.asked || !this.shown || !this.behind) return;
    this.redraw();
  }

  /** Entries before a number, from the server. @param {number} before @returns {Promise<boolean>} Whether there are any. */
  async get(before) {
    const found = await this.ask?.(before).catch(() => null);
    for (const entry of found?.entries ?? []) this.ahead.set(entry.number - 1, entry);
    return Boolean(found?.entries.length);
  }

  /** Show earlier entries. */
  async back() {
    const { from } = this, kept = this.elements.get(from);
    if (from > 0 && !this.said(from - 1)) await this.get(from + 1);
    if (this.from === from) this.move(from - PART, this.to, kept);
  }

  /** Whether a reader is at the end of what is drawn; the run may have more by now. */
  get atEnd() { return this.later.hidden && this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < NEAR; }

  toEnd() { this.box.scrollTop = this.box.scrollHeight; }

  redraw() {
    this.elements.clear();
    this.entries.replaceChildren();
    this.from = this.to = this.count;
    this.move(this.count - PART, this.count);
    this.toEnd();
  }

  /** Show another part. @param {number} from @param {number} to @param {HTMLElement} [kept]  What keeps its place. */
  move(from, to, kept) {
    const top = kept?.offsetTop ?? 0;
    from = Math.max(0, from);
    to = Math.min(to, this.count);
    for (let at = Math.min(to, this.to) - 1; at >= from; at--) if (!this.said(at)) { from = at + 1; break; } // not here yet
    if (from >= this.to || to <= this.from) { this.elements.clear(); this.entries.replaceChildren(); this.from = this.to = from; }
    const before = [], after = [];
    for (let at = from; at < this.from; at++) before.push(this.element(at));
    for (let at = this.to; at < to; at++) after.push(this.element(at));
    this.entries.prepend(...before);
    this.entries.append(...after);
    [this.from, this.to] = [from, to];
    this.earlier.hidden = !from;
    this.earlier.textContent = counted(from, "earlier entr").replace(/entrs$/, "entries").replace(/entr$/, "entry");
    this.later.hidden = to >= this.count;
    this.later.textContent = number(this.count - to) + " later";
    this.none.hidden = this.count > 0;
    if (kept) this.box.scrollTop += kept.offsetTop - top;
    this.mark();
  }

  /** Take what became of the run. @param {Growth | null} growth */
  grow(growth) {
    if (!this.shown) return;
    const end = this.atEnd;
    if (!growth || !this.behind) this.ahead.clear(); // the data have them all
    if (!growth || this.count < this.to) { this.redraw(); return; }
    const beside = this.count > this.to ? this.to - 1 : -1; // a question leaves out what the message behind it says
    for (let at = this.from; at < this.to; at++) if (growth.shifted || at === beside || growth.touched.has(this.stepAt(at))) this.renew(at);
    this.move(this.from, this.later.hidden ? this.count : this.to); // who sees the end, sees what is added
    if (end) this.toEnd();
  }

  /** Draw an entry anew: what is unfolded stays so. @param {number} at */
  renew(at) {
    const old = this.elements.get(at), open = [...old?.querySelectorAll("details") ?? []].map((one) => one.open);
    const fresh = this.element(at);
    fresh.querySelectorAll("details").forEach((one, place) => { one.open = open[place] ?? one.open; });
    old?.replaceWith(fresh);
  }

  /** Show replies while they come. @param {Piece[]} pieces */
  stream(pieces) {
    const end = this.atEnd;
    this.live.replaceChildren(...pieces.map((one) => make("div", { class: "entry turn under-way" }, make("div", { class: "by" }, make("span", { class: "who data" }, visible(one.node))), make("div", { class: "text" }, visible(one.text)))));
    if (end && pieces.length) this.toEnd();
  }

  /** Mark the entries of the step that is looked at. @param {number} index @param {boolean} following */
  here(index, following) {
    const other = index !== this.index;
    this.index = index;
    if (!this.shown) return;
    this.mark();
    if (!other || following) return;
    const at = this.data.run.talk.findIndex((said) => this.stepOf(said) === index);
    if (at < 0) return;
    if (at < this.from || at >= this.to) this.move(at - 20, at - 20 + PART);
    const element = this.elements.get(at);
    if (element) this.box.scrollTop += element.getBoundingClientRect().top - this.box.getBoundingClientRect().top - 12;
  }

  mark() { for (const [at, element] of this.elements) element.classList.toggle("here", this.stepAt(at) === this.index); }

  /** The step of an entry; -1: the data do not have it. @param {number} at */
  stepAt(at) { const said = this.said(at); return said ? this.stepOf(said) : -1; }

  /** @param {Said} said */
  stepOf([kind, seq]) { return (kind === "compaction" ? this.data.bySeq.get(seq) : this.data.within.get(seq)) ?? -1; }

  /** @param {number} at */
  element(at) {
    const said = this.said(at), found = said ? this.made(said, at) : make("div", { class: "entry" });
    found.classList.toggle("here", this.stepAt(at) === this.index);
    this.elements.set(at, found);
    return found;
  }

  /** @param {Said} said @param {number} at */
  made([kind, seq, more], at) {
    const index = this.stepAt(at), step = this.data.steps[index], entry = this.ahead.get(at);
    if (!step && !entry) return make("div", { class: "entry" });
    const calls = step?.calls ?? (entry?.call ? [entry.call] : []), node = step?.node ?? entry?.node ?? "";
    const by = (/** @type {string} */ who, /** @type {string} */ facts = "") => make("div", { class: "by" }, make("span", { class: "who data" }, visible(who)), make("span", { class: "note" }, facts),
      make("button", { type: "button", class: "link", title: "Show the step, record " + seq, onclick: () => this.chosen.step(this.stepAt(at), seq) }, make("span", { class: "data" }, visible(node)), "\u00a0↗"));
    if (kind === "message") return messageEntry(this.messageAt(at), by);
    if (kind === "compaction") return make("div", { class: "entry compaction" }, by("compaction"), make("p", {}, more ? counted(Number(more), "message") + " above: the model no longer sees them as they were." : "Messages above were shortened for the model."), step ? replacedPanel(this.data, index).slice(1) : null);
    if (kind === "question") {
      const asked = (step?.asked ?? (entry?.asked ? [entry.asked] : [])).find((one) => one.seq === seq);
      return asked ? questionEntry(asked, this.around(at), by) : make("div", { class: "entry" });
    }
    const call = calls.find((one) => one.seq === seq);
    const change = () => make("button", { type: "button", class: "link change", title: "Run this step again with another request, in a new run", onclick: () => this.chosen.change(index, seq) }, "try it changed");
    if (call && kind === "turn") return turnEntry(call, by, replacedBefore(calls, call), call.inside || !step ? null : change());
    return call ? toolEntry(call, by) : make("div", { class: "entry" });
  }

  /** The message of an entry. @param {number} at @returns {any} */
  messageAt(at) { return this.data.run.messages[String(this.said(at)?.[2])] ?? this.ahead.get(at)?.message ?? {}; }

  /** The reply before an entry and the message behind it, which a question and its answer may repeat. @param {number} at */
  around(at) {
    let place = at - 1;
    while (place >= 0 && this.said(place) && this.said(place)?.[0] !== "turn") place--;
    const seq = this.said(place)?.[1] ?? 0, reply = (this.data.callOf(seq) ?? this.ahead.get(place)?.call)?.result;
    return [String(reply?.text ?? "").trim(), this.said(at + 1)?.[0] === "message" ? String(this.messageAt(at + 1).content ?? "").trim() : ""];
  }
}

/** @typedef {(who: string, facts?: string) => HTMLElement} By */

/** A text; of a long one the beginning, and a button that shows all. @param {any} value @returns {Child[]} */
function textOf(value) {
  const text = pretty(value ?? "");
  if (!text) return [];
  const body = make("div", { class: "text" }, text);
  if (text.length <= LONG && text.split("\n").length <= LINES) return [body];
  body.classList.add("cut");
  const more = make("button", { type: "button", class: "link more", "aria-expanded": "false" }, "Show all " + number(text.length) + " characters");
  more.addEventListener("click", () => {
    const open = body.classList.toggle("cut") === false;
    more.textContent = open ? "Show less" : "Show all " + number(text.length) + " characters";
    more.setAttribute("aria-expanded", String(open));
  });
  return [body, more];
}

/** @param {any} message @param {By} by */
function messageEntry(message, by) {
  const { role = "", content = "", images, name = "", data } = message, summary = data?.summary_of !== undefined;
  const who = summary ? "summary" : role === "tool" ? "result" + (name ? " of " + name : "") : role;
  const body = [...textOf(content), ...pictures(images)];
  const known = ["system", "user", "assistant", "tool"].includes(role) ? role : "other";
  if (role !== "system" && role !== "tool" && !summary) return make("div", { class: "entry spoken from-" + known }, by(who), body);
  return make("div", { class: "entry spoken from-" + known }, make("details", {}, make("summary", {}, make("span", { class: "who" }, visible(who)), make("span", { class: "first data" }, firstOf(content))), by("", ""), body));
}

/** @param {Call} call @param {By} by @param {any} was  The reply to the request as it was. @param {HTMLElement | null} change */
function turnEntry(call, by, was, change) {
  const reply = call.result ?? {}, thought = reply.extras?.reasoning_content ?? reply.extras?.reasoning;
  const took = call.t[1] === null || call.t[1] === undefined ? null : lasting((call.t[1] - call.t[0]) / 1000);
  const ended = ["stop", "tool_calls", undefined].includes(reply.finish) ? null : "ended by " + reply.finish;
  const head = by(reply.model ?? call.name, [spent(call.usage), took, ended].filter(Boolean).join(" · "));
  if (change) head.lastElementChild?.before(change);
  return make("div", { class: "entry turn" }, head,
    thought ? make("details", {}, make("summary", {}, "Thoughts"), textOf(thought)) : null,
    was ? make("div", { class: "beside" }, make("div", { class: "was" }, make("b", {}, "as it was"), textOf(was.text)), make("div", {}, make("b", {}, "changed"), textOf(reply.text))) : textOf(reply.text),
    (reply.tool_calls ?? []).map((/** @type {any} */ one) => make("p", { class: "call data" }, "→ " + visible(one.name ?? "") + " " + short(one.arguments ?? one.raw ?? {}))),
    faultOf(call));
}

/** @param {Call} call @param {By} by */
function toolEntry(call, by) {
  const { result } = call, output = result?.output ?? result, failed = call.ok === false || call.failed;
  return make("div", { class: "entry tool" + (failed ? " failed" : "") },
    make("details", {}, make("summary", {}, make("span", { class: "who data" }, visible(call.name)), make("span", { class: "first data" }, short(call.args ?? {}) + (output === undefined ? "" : " = " + firstOf(output)))),
      by("", call.inside ? "inside " + visible(call.inside) : ""), make("h3", {}, "Arguments"), block(call.args ?? {}), output === undefined ? null : [make("h3", {}, "Result"), block(output)], pictures(result?.content),
      (call.images ?? []).map((url, place) => make("img", { class: "shot", src: url, alt: "Picture " + (place + 1) + " of " + visible(call.name) }))),
    faultOf(call));
}

/** @param {Asked} asked @param {string[]} around @param {By} by */
function questionEntry(asked, [reply, next], by) {
  const { answer } = asked, typed = answer?.type === "value" && typeof answer.value === "string" ? answer.value : null;
  if (asked.kind === "input") {
    const repeats = asked.prompt.trim() === reply;
    const person = asked.by ? visible(asked.by) : "a person";
    return make("div", { class: "entry question" + (answer ? " over" : "") }, by(answer ? (answer.type === "deny" ? "not answered" : "answered by " + person) : "waits for a message"),
      repeats ? null : textOf(asked.prompt), typed !== null && typed.trim() !== next ? make("div", { class: "answered" }, textOf(typed)) : null, answer && typed === null && answer.value !== undefined ? block(answer.value) : null,
      answer?.reason ? textOf(answer.reason) : null);
  }
  const verdict = answer?.type === "approve" ? "approved" : answer?.type === "deny" ? "denied" : answer ? "answered" : "waits for an answer";
  return make("div", { class: "entry question " + verdict.split(" ")[0] }, by(verdict + (answer && asked.by ? " by " + visible(asked.by) : "")),
    make("details", { open: !answer }, make("summary", {}, visible(asked.prompt)), questionElement(asked)), answer?.reason ? textOf(answer.reason) : null);
}

/** @param {Call} call */
function faultOf(call) {
  const fault = call.error ?? call.result?.error;
  if (fault) return make("p", { class: "bad data" }, pretty(fault));
  return call.settled === undefined ? make("p", { class: "note" }, "…") : null;
}

/** The names of pictures. @param {any} parts @returns {Child[]} */
function pictures(parts) {
  const urls = Array.isArray(parts) ? parts.map((one) => one?.url).filter((url) => typeof url === "string") : [];
  return urls.map((url) => make("p", { class: "note data" }, "picture: " + visible(url.slice(0, 200))));
}

/** @param {any} value */
function firstOf(value) { return short(typeof value === "string" ? value.trim().split("\n", 1)[0] : value); }

/** A value on one line. @param {any} value */
function short(value) {
  const text = visible(typeof value === "string" ? value : JSON.stringify(value) ?? "");
  return text.length > 160 ? text.slice(0, 159) + "…" : text;
}
