// The one picture of a run, in two forms if graphs in it can be closed. A moment is the marks of its parts: classes and
// texts, and nothing else changes.
import { lasting } from "./texts.js";

/** @import { RunData } from "./run_data.js" */
/** @import { Mark } from "./types.js" */
/** @typedef {{ svg: SVGSVGElement, prefix: string }} Form */
/** @typedef {{ element: Element, title: Element | null }} Part */

const REACH = "16", SIGN = "8";
const LEAST = 9; // pixels of the smallest text of a picture that fits
const STATES = ["running", "waiting", "failed", "queued", "interrupted"];
/** Lines of a tooltip that are about the moment at which the picture was drawn. */
const OF_MOMENT = /^(visited (once|\S+ times)|\S+ items done|took \S.*|running|waiting|failed|queued|interrupted)$/;
const LOOKED_AT = 2000; // texts of a picture whose sizes are read

/** The least factor of a picture that fits: its smallest text can be read, and what is larger is scrolled. @param {SVGSVGElement} svg */
export function leastFactor(svg) {
  const texts = [...svg.querySelectorAll("text, tspan")].slice(0, LOOKED_AT);
  return Math.min(1, LEAST / Math.min(4 * LEAST, ...texts.map((one) => parseFloat(getComputedStyle(one).fontSize)).filter(Boolean)));
}

export class Picture {
  /**
   * @param {HTMLElement} canvas
   * @param {string} prefix
   * @param {RunData} data
   * @param {{ node: (part: string) => void, edge: (part: string) => void }} chosen
   */
  constructor(canvas, prefix, data, chosen) {
    this.canvas = canvas;
    this.prefix = prefix;
    this.chosen = chosen;
    /** @type {Form[]} */
    this.forms = [];
    this.closed = false;
    this.factor = 1;
    this.fitted = true;
    this.part = "";
    /** @type {string[]} */
    this.ways = [];
    /** @type {string | null} */
    this.picked = null;
    this.data = data;
    /** How many moments the parts come from. */
    this.known = 0;
    /** @type {Map<string, Part[]>} */
    this.parts = new Map();
    /** Part -> its mark as shown, as text. @type {Map<string, string>} */
    this.shown = new Map();
    /** @type {Map<string, Mark>} */
    this.marks = new Map();
    /** @type {number | null} */
    this.seq = null;
    /** The least factor of each form. @type {Map<Form, number>} */
    this.smallest = new Map();
    this.read();
    new ResizeObserver(() => { if (this.fitted) this.fit(); }).observe(canvas);
    this.fit();
  }

  /** The form that is seen. */
  get form() { return this.forms[this.closed && this.forms.length > 1 ? 1 : 0]; }

  get recorded() { return this.data.run.picture; }

  /** Take the pictures that are there. */
  read() {
    const drawn = /** @type {NodeListOf<SVGSVGElement>} */ (this.canvas.querySelectorAll("svg.agent-graph"));
    this.forms = [...drawn].map((svg, at) => ({ svg, prefix: this.prefix + ["-", "c-"][at] }));
    for (const form of this.forms) this.prepare(form, this.chosen);
    this.parts.clear();
    this.shown.clear();
    this.find(Object.keys(this.recorded.start));
    this.rewind();
    this.grow();
  }

  /**
   * Take another picture of the same graph, which has further parts.
   * @param {string} text
   */
  redraw(text) {
    const { factor, fitted, seq, canvas } = this, { scrollLeft, scrollTop } = canvas;
    const made = new DOMParser().parseFromString(text, "text/html");
    this.smallest.clear();
    canvas.replaceChildren(...[...made.querySelectorAll("svg.agent-graph")].map((svg) => document.adoptNode(svg)));
    this.read();
    for (const form of this.forms) form.svg.toggleAttribute("hidden", form !== this.form);
    if (fitted) this.fit(); else { this.scale(factor); canvas.scrollLeft = scrollLeft; canvas.scrollTop = scrollTop; }
    if (seq !== null) this.show(seq);
  }

  /** @param {Form} form @param {{ node: (part: string) => void, edge: (part: string) => void }} chosen */
  prepare({ svg, prefix }, chosen) {
    for (const line of svg.querySelectorAll(".edge > .line")) { // a thin line is hard to hit
      const wide = /** @type {Element} */ (line.cloneNode());
      wide.setAttribute("class", "hit");
      wide.setAttribute("stroke-width", REACH);
      line.before(wide);
    }
    svg.addEventListener("click", (event) => {
      const target = /** @type {Element} */ (event.target), node = target.closest(".node"), edge = target.closest(".edge");
      if (node) chosen.node(node.id.slice(prefix.length));
      else if (edge?.id) chosen.edge(edge.id.slice(prefix.length));
    });
  }

  /** The run may have further moments. */
  grow() {
    const { moments } = this.recorded;
    for (const [, changes] of moments.slice(this.known)) this.find(Object.keys(changes));
    this.known = moments.length;
  }

  /** @param {string[]} names */
  find(names) {
    for (const name of names) {
      if (this.parts.has(name)) continue;
      const found = this.forms.flatMap((form) => document.getElementById(form.prefix + name) ?? []);
      if (found.length) this.parts.set(name, found.map((element) => ({ element, title: element.querySelector(":scope > title") })));
    }
  }

  /** The moments are other than they were: begin with the first one. */
  rewind() {
    this.known = 0;
    this.marks = new Map();
    this.seq = null;
  }

  // -- moments --------------------------------------------------------------------------------------------------

  /** @param {number} seq */
  show(seq) {
    if (seq === this.seq) return;
    const { start, moments } = this.recorded;
    const forward = this.seq !== null && seq > this.seq;
    const marks = forward ? this.marks : new Map(Object.entries(start));
    /** @type {Set<string>} */
    const changed = new Set(forward ? [] : this.parts.keys());
    for (const [at, changes] of forward ? moments.slice(this.behind(this.seq ?? 0)) : moments) {
      if (at > seq) break;
      for (const [name, mark] of Object.entries(changes)) { marks.set(name, mark); changed.add(name); }
    }
    this.marks = marks;
    this.seq = seq;
    for (const name of changed) this.put(name, this.parts.get(name) ?? [], marks.get(name) ?? [""]);
  }

  /** How many moments there are up to a record. @param {number} seq */
  behind(seq) {
    const { moments } = this.recorded;
    let low = 0, high = moments.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (moments[middle][0] <= seq) low = middle + 1; else high = middle;
    }
    return low;
  }

  /** @param {string} name @param {Part[]} parts @param {Mark} mark */
  put(name, parts, [classes, texts]) {
    const told = classes + JSON.stringify(texts ?? 0);
    if (this.shown.get(name) === told) return;
    this.shown.set(name, told);
    const said = this.summed(name, texts);
    for (const part of parts) this.mark(part, classes, said);
  }

  /**
   * The time of a node that ran more than once is a sum, and says so.
   * @param {string} name
   * @param {Record<string, string> | undefined} texts
   */
  summed(name, texts) {
    if (!texts?.took || !texts.count) return texts;
    const ran = (this.data.ofPart.get(name) ?? []).filter((index) => this.data.steps[index].began <= (this.seq ?? 0));
    const elapsed = ran.length ? "\n" + lasting(this.data.elapsed(ran)) + " elapsed, " + texts.took + " summed over " + ran.length + " steps" : "";
    return { ...texts, took: "Σ" + texts.took, told: (texts.told ?? "") + elapsed };
  }

  /** @param {Part} part @param {string} classes @param {Record<string, string> | undefined} texts */
  mark({ element, title }, classes, texts) {
    element.classList.remove(...this.recorded.classes);
    if (classes) element.classList.add(...classes.split(" "));
    for (const slot of /** @type {NodeListOf<SVGElement>} */ (element.querySelectorAll("[data-slot]")))
      if (slot.closest("[id]") === element) {
        const text = texts?.[slot.dataset.slot ?? ""] ?? "", behind = slot.dataset.slot === "times" && /\S$/.test(slot.previousSibling?.textContent ?? "");
        slot.textContent = text && behind ? "\u00a0" + text : text; // a label and the number of times are two words
        if (slot.dataset.slot === "took") slot.setAttribute("dx", slot.textContent.startsWith("Σ") ? SIGN : "0"); // the sign takes no room of the edge
      }
    if (title instanceof SVGElement) {
      title.dataset.own ??= (title.textContent ?? "").split("\n").slice(0, 8).filter((line, at) => !at || !OF_MOMENT.test(line)).join("\n");
      const state = STATES.find((one) => element.classList.contains(one));
      title.textContent = [title.dataset.own, state, texts?.told].filter(Boolean).join("\n");
    }
  }

  // -- what is chosen -------------------------------------------------------------------------------------------

  /**
   * Show a node and the edges that its step took as chosen; nothing is laid out for that.
   * @param {string} part
   * @param {string[]} ways
   * @param {string | null} picked  An edge that was clicked on.
   */
  here(part, ways, picked) {
    Object.assign(this, { part, ways, picked });
    for (const name of ["here", "way", "picked"]) this.canvas.querySelectorAll("." + name).forEach((element) => element.classList.remove(name));
    for (const way of ways) this.element(way)?.classList.add("way");
    const edge = picked ? this.element(picked) : null;
    edge?.classList.add("picked");
    let name = part, element = part ? this.element(name) : null;
    while (name && !element && name.includes(".")) { // it is inside of a node that is closed
      name = name.slice(0, name.lastIndexOf("."));
      element = this.element(name);
    }
    element?.classList.add("here");
    const seen = edge ?? element;
    if (seen) this.reach(seen);
  }

  /** @param {string} name */
  element(name) { return document.getElementById(this.form.prefix + name); }

  /** Scroll the picture, if a part of it is out of view. @param {Element} element */
  reach(element) {
    const box = element.getBoundingClientRect(), frame = this.canvas.getBoundingClientRect();
    if (box.right < frame.left + 20 || box.left > frame.right - 20 || box.bottom < frame.top + 20 || box.top > frame.bottom - 20) {
      this.canvas.scrollLeft += box.left + box.width / 2 - frame.left - frame.width / 2;
      this.canvas.scrollTop += box.top + box.height / 2 - frame.top - frame.height / 2;
    }
  }

  // -- size -----------------------------------------------------------------------------------------------------

  /** @returns {[number, number]} */
  get size() {
    const { width, height } = this.form.svg.viewBox.baseVal;
    return [width, height];
  }

  /** @param {number} factor */
  scale(factor) {
    this.factor = Math.min(4, Math.max(0.03, factor));
    this.form.svg.setAttribute("width", String(this.size[0] * this.factor));
    this.form.svg.setAttribute("height", String(this.size[1] * this.factor));
  }

  /** @param {boolean} closed  Whether graphs inside are drawn as one node. */
  fold(closed) {
    this.closed = closed;
    for (const form of this.forms) form.svg.toggleAttribute("hidden", form !== this.form);
    this.fit();
    this.here(this.part, this.ways, this.picked);
  }

  least() {
    let least = this.smallest.get(this.form);
    if (least === undefined) this.smallest.set(this.form, (least = leastFactor(this.form.svg)));
    return least;
  }

  fit() {
    const [width, height] = this.size;
    this.scale(Math.max(this.least(), Math.min(1, (this.canvas.clientWidth - 4) / width, (this.canvas.clientHeight - 4) / height)));
    this.fitted = true;
  }

  /** @param {number} by  0: its own size. */
  zoom(by) {
    this.fitted = false;
    this.scale(by === 0 ? 1 : this.factor * by);
  }
}
