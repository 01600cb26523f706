// The keys of the page, and the list of them.
import { make } from "./elements.js";
import { TABS } from "./detail.js";

/** @import { RunView } from "./view.js" */

/** @type {[string, string][]} */
const KEYS = [
  ["↓ ↑ or j k", "next, previous step"], ["← →", "next, previous record; in the list close, open"], ["Home End", "begin, end"], ["space", "play, pause"],
  ["x X", "fold the step, fold all"], ["1 – 5", "step, state, model, tools, run"], ["f", "follow a run that goes on"], ["o", "go on from this step in a new run"], ["t", "graph, transcript"],
  ["+ − 0", "a shorter, a longer part of the time; all of it"],
  ["/", "search; Enter goes to the next found"], ["Esc", "end the search, leave an edge"], ["?", "this"],
];

/** @param {[string, string][]} more  Keys beside those of every page. @returns {HTMLDialogElement} */
export function keysDialog(more) {
  const dialog = /** @type {HTMLDialogElement} */ (make("dialog", { "aria-label": "Keys" }, make("h2", {}, "Keys"),
    make("dl", { class: "keys" }, [...KEYS.slice(0, -1), ...more, ...KEYS.slice(-1)].map(([key, does]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, does)])),
    make("form", { method: "dialog" }, make("button", {}, "Close"))));
  dialog.querySelector("form")?.addEventListener("submit", (event) => { event.preventDefault(); dialog.close(); });
  return dialog;
}

/**
 * @param {KeyboardEvent} event
 * @param {RunView} view
 * @param {HTMLDialogElement} help
 */
export function press(event, view, help) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const target = /** @type {HTMLElement} */ (event.target);
  const act = target === view.filters.search ? inSearch(event, view) : target.matches("input[type=radio], input[type=text], input[type=number], select, textarea, [role=separator]") ? null : everywhere(event, view, help, target);
  if (!act) return;
  event.preventDefault();
  act();
}

/** @param {KeyboardEvent} event @param {RunView} view @returns {(() => void) | null} */
function inSearch(event, view) {
  if (event.key === "Escape") return () => { view.filters.change({ text: "" }); view.filters.search.blur(); };
  return event.key === "Enter" ? () => view.step(event.shiftKey ? -1 : 1) : null;
}

/** @param {KeyboardEvent} event @param {RunView} view @param {HTMLDialogElement} help @param {HTMLElement} target */
function everywhere(event, view, help, target) {
  const scrolls = target.matches("pre, .panel, .diff, .canvas, .talk, .wide, .text, .id"), pressed = target.matches("button, summary, a, input"), tree = target === view.box;
  const moves = scrolls || target.matches("input[type=range]") ? {} : {
    ArrowDown: () => view.step(1), ArrowUp: () => view.step(-1), PageDown: () => view.step(10), PageUp: () => view.step(-10),
    ArrowRight: () => (tree ? view.turn(true) : view.go(view.seq + 1)), ArrowLeft: () => (tree ? view.turn(false) : view.go(view.seq - 1)),
    Home: () => view.go(1), End: () => view.go(view.data.head),
  };
  const tabs = Object.fromEntries(TABS.map((tab, at) => [String(at + 1), () => view.show(tab)]));
  /** @type {Record<string, (() => void) | undefined>} */
  const acts = {
    ...moves, ...tabs, j: () => view.step(1), k: () => view.step(-1), x: () => twist(view), X: () => view.foldAll(),
    " ": pressed || scrolls ? undefined : () => view.play(), "/": () => view.filters.search.focus(), "?": () => help.showModal(),
    f: () => view.at("follow").click(), o: () => view.goOn.open(view.index), t: () => view.talk.look(view.talk.shown ? "graph" : "transcript"), "+": () => view.list.zoom(2), "=": () => view.list.zoom(2), "-": () => view.list.zoom(0.5), 0: () => view.list.zoom(0), Escape: view.edge ? () => view.pick(null) : undefined,
  };
  return acts[event.key] ?? null;
}

/** @param {RunView} view */
function twist(view) {
  const row = view.outline.rowOf(view.index);
  if (row) view.turn(view.outline.closed.has(row.key));
}
