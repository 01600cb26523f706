// The panel beside the picture: tabs, and what the chosen one shows of the chosen step or edge.
import { modelPanel, toolsPanel } from "./call_panels.js";
import { byId, empty, make, present } from "./elements.js";
import { edgePanel } from "./edge_panel.js";
import { sourceElement } from "./node_source.js";
import { runPanel } from "./run_panel.js";
import { statePanel } from "./state_panel.js";
import { stepPanel } from "./step_panel.js";

/** @import { Children } from "./elements.js" */
/** @import { Notes } from "./notes.js" */
/** @import { RunData } from "./run_data.js" */
/** @typedef {"step" | "state" | "model" | "tools" | "run"} Tab */

/** @type {Tab[]} */
export const TABS = ["step", "state", "model", "tools", "run"];

/**
 * What of a run is looked at.
 * @typedef {object} Look
 * @property {Tab} tab
 * @property {number} index
 * @property {string | null} edge
 */

export class Detail {
  /**
   * @param {string} prefix
   * @param {RunData} data
   * @param {Notes} notes
   * @param {import("./source.js").Source["code"]} code
   * @param {{ tab: (tab: Tab) => void, edge: (edge: string | null) => void, step: (index: number) => void, go: (index: number, seq?: number) => void }} chosen
   */
  constructor(prefix, data, notes, code, chosen) {
    this.prefix = prefix;
    this.data = data;
    this.notes = notes;
    this.code = code;
    /** @type {Map<string, import("./types.js").NodeSource>} */
    this.sources = new Map();
    this.chosen = chosen;
    this.panel = byId(prefix + "-panel");
    /** @type {import("./state_panel.js").Way} */
    this.way = "changes";
    /** @type {Look} */
    this.look = { tab: "step", index: -1, edge: null };
    for (const tab of TABS) {
      const button = this.button(tab);
      button.addEventListener("click", () => chosen.tab(tab));
      button.addEventListener("keydown", (event) => this.beside(event, tab));
    }
  }

  /** @param {Tab} tab */
  button(tab) { return byId(this.prefix + "-tab-" + tab); }

  /** @param {KeyboardEvent} event @param {Tab} tab */
  beside(event, tab) {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!by) return;
    const next = TABS[(TABS.indexOf(tab) + by + TABS.length) % TABS.length];
    this.chosen.tab(next);
    this.button(next).focus();
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {Look} look */
  show(look) {
    this.look = look;
    for (const tab of TABS) {
      this.button(tab).setAttribute("aria-selected", String(tab === look.tab));
      this.button(tab).tabIndex = tab === look.tab ? 0 : -1;
    }
    this.panel.setAttribute("aria-labelledby", this.prefix + "-tab-" + look.tab);
    this.panel.replaceChildren(...present([this.goOn(look), ...this.parts(look)]));
    this.panel.scrollTop = 0;
  }

  /**
   * Show the same as before, of a run that went on: what is unfolded stays so, and nothing jumps.
   * @param {Look} look
   */
  renew(look) {
    const { panel } = this, { scrollTop } = panel;
    const open = [...panel.querySelectorAll("details")].map((one) => one.open), focused = document.activeElement;
    this.show(look);
    panel.querySelectorAll("details").forEach((one, at) => { one.open = open[at] ?? one.open; });
    panel.scrollTop = scrollTop;
    if (focused instanceof HTMLElement && panel.contains(focused)) focused.focus({ preventScroll: true });
  }

  /** The button that begins a new run at the step. @param {Look} look @returns {Children} */
  goOn({ tab, index, edge }) {
    if (tab === "run" || (tab === "step" && edge) || !this.data.steps[index]) return null;
    return make("div", { class: "go" }, make("button", { type: "button", title: "Begin a new run at this step (o)", onclick: () => this.chosen.go(index) }, "Go on from here"));
  }

  /** @param {Look} look @returns {Children[]} */
  parts({ tab, index, edge }) {
    const { data } = this;
    if (tab === "run") return [...runPanel(data), this.notes.panel(null)];
    if (tab === "step" && edge) return edgePanel(data, edge, { step: this.chosen.step, close: () => this.chosen.edge(null) });
    if (!data.steps[index]) return [empty("No step had begun.")];
    if (tab === "state") return statePanel(data, index, this.way, { name: this.prefix + "-way", choose: (way) => { this.way = way; this.show(this.look); } });
    if (tab === "model") return modelPanel(data, index, (seq) => this.chosen.go(index, seq));
    if (tab === "tools") return toolsPanel(data, index);
    const step = data.steps[index], { code } = this, source = code && data.run.kinds[step.part] === "function" ? sourceElement(step, code, this.sources) : null;
    return [...stepPanel(data, index, this.chosen.edge), source, data.ended(index) === null ? null : this.notes.panel(data.ended(index))];
  }
}
