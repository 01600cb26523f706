// @ts-check
// The kinds of nodes, a form that adds one on an edge, and where the outcomes of a node lead: changes of the text by
// choosing.

import { call } from "../api.js";
import { make, prose } from "../elements.js";
import { FAILURES, GraphText, labelOf } from "./yaml_text.js";

/** @import { Kind } from "./meant.js" */
/** @import { Edge } from "./yaml_text.js" */
/** @typedef {{text: () => string, change: (text: string, node: string) => void, go: (node: string) => void, outcomes: () => Record<string, string[]>, refuse: (text: string) => void}} How */

const FIRST = ["model", "people", "state"]; // kinds that graphs are mostly made of
const BAD = new Set(["denied", "invalid", ...FAILURES]); // outcomes after which a run does not go on as before

export class Parts {
  /** @param {{kinds: HTMLElement, adding: HTMLFormElement, selected: HTMLElement}} places @param {How} how */
  constructor({ kinds, adding, selected }, how) {
    this.how = how;
    this.kinds = kinds;
    this.adding = adding;
    this.selected = selected;
    /** @type {Kind[]} */
    this.known = [];
    this.node = "";
    this.shown = ""; // what `selected` shows, as text
    this.turn = 0; // the kind that was chosen last
    adding.addEventListener("keydown", (event) => { if (event.key === "Escape") { event.stopPropagation(); this.cancel(); } });
  }

  // -- the palette ----------------------------------------------------------------------------------------------

  /** @param {Kind[]} kinds */
  offer(kinds) {
    this.known = kinds;
    const groups = [...new Set([...FIRST, ...kinds.map((one) => one.category)])];
    this.kinds.replaceChildren(...groups.map((name, number) => make("div", { class: "group" }, make("h3", { id: `group-${number}` }, name), make("ul", { "aria-labelledby": `group-${number}` },
      ...kinds.filter((one) => one.category === name).map((one) => make("li", {}, make("button", {
        type: "button", class: "kind", "data-kind": one.name, title: `${one.summary.replaceAll("`", "")}${portsOf(one)}`, onclick: () => { void this.begin(one); },
      }, one.name)))))));
  }

  /** Ask where a node of a kind goes. @param {Kind} kind */
  async begin(kind) {
    const turn = ++this.turn, text = GraphText.of(this.how.text()), name = text.free(kind.name), body = kind.example.trimEnd().split("\n");
    const outcomes = await outcomesOf(name, body) ?? kind.outcomes ?? [];
    if (turn !== this.turn) return;
    const edges = text.edges.filter((one) => one.source !== "*");
    const label = make("input", { type: "text", id: "adding-name", value: name, autocomplete: "off", spellcheck: "false" });
    const place = make("select", { id: "adding-place" },
      ...edges.map((one, at) => make("option", { value: String(at), selected: at === this.nearest(edges) }, `on ${one.source} -> ${one.target}${labelOf(one) ? ` : ${labelOf(one)}` : ""}`)),
      make("option", { value: "" }, "not connected yet"));
    const ways = make("div", { class: "ways" });
    const input = /** @type {HTMLInputElement} */ (label), select = /** @type {HTMLSelectElement} */ (place);
    const lead = () => {
      const on = edges[Number(select.value)];
      ways.replaceChildren(...(select.value === "" ? [] : (outcomes.length && !single(outcomes) ? outcomes : [null]).map((outcome) =>
        this.way(outcome, outcome && BAD.has(outcome) ? "END" : on.target, [input.value, ...targetsOf(text)], outcome ? `${outcome} leads to` : "leads to"))));
    };
    select.addEventListener("change", lead);
    this.adding.replaceChildren(
      make("h3", {}, make("span", {}, "Add "), make("b", { class: "data" }, kind.name)), make("p", { class: "soft" }, prose(kind.summary)),
      make("label", { for: "adding-name" }, "Name"), label, make("label", { for: "adding-place" }, "Where"), place, ways, ...exampleOf(kind, body, outcomes),
      make("div", { class: "acts" }, make("button", { class: "first" }, "Add"), make("button", { type: "button", onclick: () => this.cancel() }, "Cancel")));
    this.adding.dataset.of = kind.name;
    this.adding.onsubmit = (event) => {
      event.preventDefault();
      const on = select.value === "" ? null : edges[Number(select.value)];
      const chosen = [...ways.querySelectorAll("select")].map((one) => /** @type {[string | null, string]} */ ([one.dataset.outcome || null, one.value])).filter(([, target]) => target);
      this.add(input.value.trim(), body, on, chosen);
    };
    lead();
    this.only(true);
    this.adding.scrollIntoView({ block: "nearest" });
    input.focus();
    input.select();
  }

  /** The edge that a new node most likely goes on: one that leads from the chosen node, else the first. @param {Edge[]} edges */
  nearest(edges) {
    const from = edges.findIndex((one) => one.source === this.node);
    const into = edges.findIndex((one) => one.target === this.node);
    return Math.max(0, from >= 0 ? from : into);
  }

  /** @param {string} name @param {string[]} body @param {Edge | null} on @param {[string | null, string][]} ways */
  add(name, body, on, ways) {
    const text = GraphText.of(this.how.text());
    if (text.free(name) !== name) { this.how.refuse(`${name || "Nothing"} cannot be the name of a new node: take letters, digits and _, and no name that is there.`); return; }
    const now = on && text.edges.find((one) => one.source === on.source && one.target === on.target && one.outcome === on.outcome && one.each === on.each);
    const made = on && !now ? null : text.add(name, body, now ?? null, ways);
    if (made === null) { this.how.refuse("The text has another form than this page changes: write the node into it yourself."); return; }
    this.close();
    this.how.change(made, name);
  }

  close() {
    this.only(false);
    this.adding.replaceChildren();
  }

  /** Add nothing, and go back to the kind. */
  cancel() {
    this.close();
    /** @type {HTMLElement | null} */ (this.kinds.querySelector(`[data-kind="${CSS.escape(this.adding.dataset.of ?? "")}"]`))?.focus();
  }

  /** Show the form instead of the kinds, so that it has room and no other kind takes its place; or the kinds. @param {boolean} form */
  only(form) {
    this.adding.hidden = !form;
    this.kinds.hidden = this.selected.hidden = form;
  }

  // -- the chosen node ------------------------------------------------------------------------------------------

  /** Show where the outcomes of a node lead. @param {string} node "": of none */
  choose(node) {
    this.node = node;
    this.show();
  }

  /** The text, or what is known of it, is another one. */
  show() {
    const text = GraphText.of(this.how.text()), { node } = this;
    const entry = node ? text.node(node) : null, ways = text.ways(node);
    const names = text.nodes.map((one) => one.key);
    const declared = this.how.outcomes()[node] ?? [];
    const outcomes = entry ? [...new Set([...(single(declared) ? [null] : declared), ...ways.map((one) => one.outcome)])] : [];
    const shown = JSON.stringify([names, node, entry ? text.kind(entry) : "", outcomes, ways.map((one) => [one.outcome, one.target, one.each])]);
    if (shown === this.shown) return;
    const held = this.selected.contains(document.activeElement) ? document.activeElement?.getAttribute("data-key") : null;
    this.shown = shown;
    const pick = make("select", { id: "node", "data-key": "node" }, make("option", { value: "", selected: !entry }, "none"), ...names.map((one) => make("option", { value: one, selected: one === node }, one)));
    pick.addEventListener("change", () => this.how.go(/** @type {HTMLSelectElement} */ (pick).value));
    this.selected.replaceChildren(make("label", { for: "node" }, make("h2", {}, "Node")), pick,
      entry && make("p", { class: "soft" }, text.kind(entry)) || "",
      entry && outcomes.length ? make("div", { class: "ways" }, ...outcomes.map((outcome) => this.leads(text, node, outcome))) : "");
    if (held) /** @type {HTMLElement | null} */ (this.selected.querySelector(`[data-key="${CSS.escape(held)}"]`))?.focus();
  }

  /** @param {GraphText} text @param {string} node @param {string | null} outcome */
  leads(text, node, outcome) {
    const now = text.ways(node).filter((one) => one.outcome === outcome);
    if (now.length > 1 || now[0]?.each) return make("p", { class: "way" }, make("b", {}, outcome ?? "any"), ` leads to ${now.map((one) => one.target + (one.each ? ` for each ${one.each}` : "")).join(", ")}`);
    const row = this.way(outcome, now[0]?.target ?? "", ["", ...targetsOf(text)], outcome ? `${outcome} leads to` : "leads to");
    row.querySelector("select")?.addEventListener("change", (event) => {
      const made = GraphText.of(this.how.text()).lead(node, outcome, /** @type {HTMLSelectElement} */ (event.target).value);
      if (made === null) this.how.refuse("The text has another form than this page changes: write the edge into it yourself.");
      else this.how.change(made, "");
    });
    return row;
  }

  /** A choice of where an outcome leads. @param {string | null} outcome @param {string} target @param {string[]} targets @param {string} label */
  way(outcome, target, targets, label) {
    const id = `way-${outcome ?? ""}-${Math.random().toString(36).slice(2)}`, all = targets.includes(target) ? targets : [...targets, target];
    return make("p", { class: "way" }, make("label", { for: id, class: "data" }, label),
      make("select", { id, "data-outcome": outcome ?? "", "data-key": `way ${outcome ?? ""}` }, ...[...new Set(all)].map((one) => make("option", { value: one, selected: one === target }, one || "nowhere"))));
  }
}

/** @param {GraphText} text */
const targetsOf = (text) => [...text.nodes.map((one) => one.key), "END"];

/** Whether there is nothing to tell apart. @param {string[]} outcomes */
const single = (outcomes) => outcomes.length === 0 || (outcomes.length === 1 && outcomes[0] === "done");

/** What is written into the text, and that its outcomes are not all there could be. @param {Kind} kind @param {string[]} body @param {string[]} outcomes */
function exampleOf(kind, body, outcomes) {
  if (body.join("").replaceAll(/[{}\s]/g, "") === `kind:${kind.name}`) return [];
  const own = !kind.outcomes && !single(outcomes);
  return [make("p", { class: "soft" }, own ? `The outcomes ${outcomes.join(", ")} are those of an example, which you change in the text:` : "An example is written, which you change in the text:"),
    make("pre", { class: "data example", tabindex: "0", "aria-label": "Example" }, body.join("\n"))];
}

/** @param {Kind} kind */
function portsOf(kind) {
  const ports = kind.fields.filter((one) => one.port).map((one) => `${one.name} (${one.port.replaceAll("`", "")})`);
  return `${ports.length ? `\nPorts: ${ports.join(", ")}` : ""}${kind.outcomes?.length ? `\nOutcomes: ${kind.outcomes.join(", ")}` : ""}`;
}

/** The outcomes that the server sees in a node. @param {string} name @param {string[]} body @returns {Promise<string[] | null>} */
async function outcomesOf(name, body) {
  const text = `name: example\nnodes:\n  ${name}:${body.length === 1 ? ` ${body[0]}` : `\n${body.map((line) => `    ${line}`).join("\n")}`}\nedges: START -> ${name} -> END\n`;
  try {
    const found = await call("/graphs/check", { method: "POST", body: { text, format: "yaml" } });
    return found.nodes?.find((/** @type {{name: string}} */ one) => one.name === name)?.outcomes ?? null;
  } catch {
    return null;
  }
}
