// @ts-check
// The editor of graphs: text, problems and picture beside each other.

import { call, Problem, root } from "./api.js";
import { Checker } from "./compose/checker.js";
import { Completion } from "./compose/completion.js";
import { Drafts } from "./compose/draft.js";
import { Editor } from "./compose/editor.js";
import { Parts } from "./compose/parts.js";
import { Picture } from "./compose/picture.js";
import { anotherName, save } from "./compose/saving.js";
import { HIDDEN } from "./compose/tokens.js";
import { Trial } from "./compose/trial.js";
import { GraphText } from "./compose/yaml_text.js";
import { byId, make } from "./elements.js";
import { addKeys, note } from "./shell.js";
import { returnHere } from "./try_return.js";

/** @import { Checked } from "./compose/checker.js" */
/** @import { Known } from "./compose/meant.js" */

/** @type {{text: string, fault: string, graph: string, from: string, digest: string | null, tries: boolean, saves: boolean}} */
const begin = JSON.parse(byId("begin").textContent ?? "{}");
const drafts = new Drafts(begin.graph ? `graph:${begin.graph}` : begin.from ? `from:${begin.from}` : "");
const MOST = 100; // problems that are listed
const NAMED = /^name:.*$/m; // the line with the name of the graph

/** @type {Checked | null} */
let checked = null; // of the text as it is, or as it was last
let current = false; // whether it is of the text as it is
let saved = begin.text;
let made = begin.text; // what the draft is compared with when the page is opened again
let leaving = false;
/** Name of a file -> its digest as this page knows it. @type {Map<string, string>} */
const files = new Map(begin.digest ? [[begin.graph, begin.digest]] : []);
let started = false; // whether all parts of the page are there
/** @type {Known} */
const known = { kinds: [], common: [], tools: [], models: [], joins: ["all", "each"], words: {}, outcomes: {}, fields: [] };

const draft = drafts.read();
if (draft && draft.text !== begin.text) {
  /** @type {HTMLTextAreaElement} */ (byId("text")).value = draft.text;
  say(draft.from === begin.text ? "This is your draft." : "This is your draft. What it was made from has changed since.");
} else if (begin.fault) say(begin.fault);

const editor = new Editor(byId("editor"), { changed, moved });
const picture = new Picture(byId("canvas"), { node: goToNode, edge: goToEdge });
const parts = new Parts({ kinds: byId("kinds"), adding: /** @type {HTMLFormElement} */ (byId("adding")), selected: byId("selected") }, {
  text: () => editor.text,
  outcomes: () => known.outcomes,
  refuse: (text) => note(text, { bad: true }),
  go: (node) => { if (node) goToNode([node], false); else choose([]); },
  change: (text, node) => {
    const held = document.activeElement?.getAttribute("data-key"), chosen = parts.node;
    editor.become(text);
    if (node) return goToNode([node]);
    editor.caret = editor.line;
    choose(chosen ? [chosen] : []); // although the caret is at the edge that changed
    if (held) /** @type {HTMLElement | null} */ (document.querySelector(`#selected [data-key="${CSS.escape(held)}"]`))?.focus();
  },
});
const trial = new Trial(byId("trial"), { text: () => editor.text, leave: () => { keep(); returnHere(); leaving = true; } });
const checker = new Checker(() => editor.text, {
  checked: (found) => take(found),
  drawn: (svg, found) => { proofs(found); void picture.show(svg).then(() => { mark(); document.documentElement.dataset.drawn = "yes"; }); },
  failed: (error) => {
    current = false;
    byId("state").textContent = error instanceof Problem ? error.message : "The server does not answer. Trying again …";
  },
});
new Completion(editor, () => known);

/** @param {string} text */
function say(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = !text;
}

// -- the text -----------------------------------------------------------------------------------------------------

let keeping = 0;

function changed() {
  if (!started) return;
  current = false;
  Object.assign(document.documentElement.dataset, { checked: "no", drawn: "no" });
  checker.changed();
  clearTimeout(keeping);
  keeping = setTimeout(keep, 300);
}

/** Keep the draft. */
function keep() {
  clearTimeout(keeping);
  if (!drafts.write(editor.text, made)) say("The browser keeps no draft of this text: save it before you leave.");
  byId("revert").hidden = editor.text === begin.text;
}

/** The caret is on another line. */
function moved() {
  if (!started) return;
  const text = new GraphText(editor.lines.map((one) => one.text)), path = text.at(editor.line);
  if (editor.chosen && (editor.line < editor.chosen[0] || editor.line > editor.chosen[1])) { editor.chosen = null; editor.draw(); }
  choose(path);
}

/** @param {string[]} path */
function choose(path) {
  picture.choose(path);
  picture.reach();
  parts.choose(path[0] ?? "");
}

// -- answers ------------------------------------------------------------------------------------------------------

/** @param {Checked} found */
function take(found) {
  checked = found;
  current = true;
  const nodes = (found.nodes ?? []).filter((one) => !one.name.includes("/"));
  for (const one of nodes) if (one.outcomes) known.outcomes[one.name] = one.outcomes;
  known.fields = (found.fields ?? []).map((one) => ({ key: one.name, type: one.type }));
  const { length } = found.problems, more = found.more_problems ?? 0;
  byId("state").textContent = found.ok ? `No problems, ${nodes.length} ${nodes.length === 1 ? "node" : "nodes"}.` : `${length + more} ${length + more === 1 ? "problem" : "problems"}.`;
  byId("state").className = `lead ${found.ok ? "good" : "bad"}`;
  if (!found.ok) { picture.stale(true); byId("proofs").hidden = true; }
  problems(found);
  mark();
  parts.show();
  if (!byId("trial").hidden && !trial.run) trial.open(found.form ?? null);
  document.documentElement.dataset.checked = "yes";
}

/** @param {Checked} found */
function problems(found) {
  const hidden = editor.lines.flatMap((line, at) => (HIDDEN.test(line.text) ? [at] : [])).slice(0, 20);
  const rows = [
    ...found.problems.slice(0, MOST).map((one) => row("fault", one.line, one.message, one.nodes)),
    ...hidden.map((at) => row("warning", at + 1, `characters that cannot be seen: ${HIDDEN.exec(editor.lines[at].text)?.[0] ?? ""}`, [])),
    ...found.notes.map((text) => row("about", 0, text, [])),
    ...found.skipped.map((text) => row("about", 0, `not checked: ${text}`, [])),
  ];
  const left = found.problems.length + (found.more_problems ?? 0) - MOST;
  if (left > 0) rows.push(row("about", 0, `and ${left} more`, []));
  byId("problems").replaceChildren(...rows);
}

/** @param {string} kind @param {number} line from 1; 0: of no line @param {string} text @param {string[]} nodes */
function row(kind, line, text, nodes) {
  const entry = !line && nodes.length ? GraphText.of(editor.text).find(nodes[0].split("/")) : null, at = line || (entry ? entry.first + 1 : 0);
  const said = [at ? make("b", {}, `line ${at}`) : "", make("span", { class: "data" }, text)];
  return make("li", { class: kind }, at ? make("button", { type: "button", "data-line": String(at), onclick: () => goToLine(at - 1) }, ...said) : make("p", {}, ...said));
}

/** Mark lines and nodes with problems. */
function mark() {
  /** @type {Map<number, "fault" | "warning">} */
  const lines = new Map();
  for (const one of checked?.problems ?? []) if (one.line) lines.set(one.line - 1, "fault");
  editor.mark(lines);
  picture.choose(picture.here ? picture.here.split(".") : [], new Set((checked?.problems ?? []).flatMap((one) => one.nodes).map((name) => name.replaceAll("/", "."))));
}

/** @param {Checked} found */
function proofs(found) {
  const list = found.proofs ?? [], box = byId("proofs");
  box.hidden = !list.length;
  const refuted = list.filter((one) => one.verdict === "refuted").length;
  /** @type {HTMLElement} */ (box.querySelector("summary")).textContent = `${list.length} ${list.length === 1 ? "claim" : "claims"} about all runs${refuted ? `, ${refuted} refuted` : ""}`;
  box.querySelector("ul")?.replaceChildren(...list.map((one) => make("li", { class: one.verdict }, make("span", { class: `pill ${one.verdict}` }, one.verdict), " ", make("span", { class: "data" }, one.claim),
    one.reason ? make("span", { class: "soft data" }, ` ${one.reason}`) : "",
    one.witness?.length ? make("span", { class: "soft data" }, ` ${one.witness.map((/** @type {any} */ step) => `${step.node}${step.outcome ? ` (${step.outcome})` : ""}`).join(" → ")}`) : "")));
}

// -- from here to there -------------------------------------------------------------------------------------------

/** @param {number} line from 0 */
function goToLine(line) {
  editor.go(line);
  moved();
}

/** @param {string[]} path @param {boolean} [focus] */
function goToNode(path, focus = true) {
  const entry = GraphText.of(editor.text).find(path), there = checked?.nodes?.find((one) => one.name === path.join("/"));
  const [first, last] = entry ? [entry.first, entry.last] : there?.first ? [there.first - 1, there.last - 1] : [-1, -1];
  if (first >= 0) editor.go(first, last, { focus });
  choose(path);
}

/** @param {number} number @param {string[]} path  Of the graph inside in which the edge is. */
function goToEdge(number, path) {
  if (path.length) return goToNode(path);
  const edge = GraphText.of(editor.text).edges[number];
  if (edge) goToLine(edge.line);
}

// -- commands -----------------------------------------------------------------------------------------------------

function tryIt() {
  trial.run = "";
  trial.open(current || checked?.ok ? checked?.form ?? null : null);
}

async function saveIt(name = checked?.graph ?? GraphText.of(editor.text).names("name")[0] ?? "graph") {
  const text = editor.text;
  const done = await save(name, text, begin.saves, files.get(name) ?? null);
  if (done.saved) saved = text;
  if (done.saved && name === begin.graph) made = text;
  if (done.saved) drafts.write(editor.text, made);
  if (done.digest) files.set(name, done.digest);
  if (done.taken && NAMED.test(text)) {
    const other = await anotherName(name, done.says);
    if (!other) return note("Nothing was saved.");
    editor.become(editor.text.replace(NAMED, `name: ${other}`));
    return saveIt(other);
  }
  note(done.says, { bad: done.bad });
  if (done.digest) {
    byId("notice").replaceChildren(make("span", { class: "data" }, `${name} is a graph of this server now.`), " ", make("a", { href: `${root}/graphs/${encodeURIComponent(name)}` }, "Start a run of it"));
    byId("notice").hidden = false;
  }
}

byId("try").addEventListener("click", tryIt);
byId("save").addEventListener("click", () => { void saveIt(); });
byId("revert").addEventListener("click", () => { editor.become(begin.text); keep(); say(""); });
byId("start").addEventListener("change", () => {
  keep();
  leaving = true;
  const { value } = /** @type {HTMLSelectElement} */ (byId("start"));
  location.assign(`${root}/compose${value ? `?${value}` : ""}`);
});
document.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "s") void saveIt();
  else if (event.key === "Enter" && !byId("try").hidden) tryIt();
  else return;
  event.preventDefault();
});
addEventListener("beforeunload", (event) => {
  keep();
  if (!leaving && editor.text !== begin.text && editor.text !== saved) event.preventDefault();
});
addEventListener("pageshow", () => { leaving = false; });
addKeys([
  { keys: "Ctrl+Space", does: "complete the word at the caret" },
  { keys: "Ctrl+Enter", does: "try the text", act: tryIt },
  { keys: "Ctrl+S", does: "save the text as a file", act: () => { void saveIt(); } },
  { keys: "e", does: "edit the text", act: () => editor.area.focus() },
]);
byId("try").hidden = !begin.tries;

async function learn() {
  try {
    const found = await call("/kinds");
    Object.assign(known, { kinds: found.kinds, common: found.common, tools: found.tools, models: found.models, joins: found.joins, words: found.words });
    parts.offer(found.kinds);
    trial.risks = found.risks;
    trial.models = { ...(found.default_model ? { default: `${found.default_model} (that of the server)` } : {}), ...Object.fromEntries(found.models.filter((/** @type {string} */ one) => one !== "offline" && one !== "default").map((/** @type {string} */ one) => [one, one])) };
  } catch (error) {
    byId("kinds").replaceChildren(make("p", { class: "soft" }, error instanceof Problem ? error.message : "The server does not answer."));
  }
}

started = true;
byId("revert").hidden = editor.text === begin.text;
checker.changed();
parts.show();
void learn().then(() => { document.documentElement.dataset.ready = "yes"; });
