// @ts-check
// The drawing of the text: replaced without losing its size and place, pale while the text is faulty. What is marked in
// it is a class; nothing is laid out for that.

import { byId } from "../elements.js";
import { leastFactor } from "../modules/picture.js";

const LEAST = 0.1, MOST = 4, STEP = 1.25;

export class Picture {
  /**
   * @param {HTMLElement} canvas
   * @param {{node: (path: string[]) => void, edge: (number: number, path: string[]) => void}} chosen
   */
  constructor(canvas, chosen) {
    this.canvas = canvas;
    /** @type {SVGSVGElement | null} */
    this.svg = null;
    this.factor = 1;
    this.fitted = true;
    this.here = "";
    /** @type {Set<string>} */
    this.faulty = new Set();
    this.turn = 0;
    byId("larger").addEventListener("click", () => this.zoom(STEP));
    byId("smaller").addEventListener("click", () => this.zoom(1 / STEP));
    byId("fit").addEventListener("click", () => this.fit());
    byId("real").addEventListener("click", () => this.zoom(1 / this.factor));
    new ResizeObserver(() => { if (this.fitted) this.fit(); }).observe(canvas);
    canvas.addEventListener("click", (event) => {
      const target = /** @type {Element} */ (event.target), node = target.closest(".node"), edge = target.closest(".edge");
      if (node instanceof SVGElement && node.dataset.node) chosen.node(pathOf(node, node.dataset.node));
      else if (edge instanceof SVGElement && edge.dataset.edge) chosen.edge(Number(edge.dataset.edge), pathOf(edge, ""));
    });
    canvas.addEventListener("keydown", (event) => {
      const by = { "+": STEP, "=": STEP, "-": 1 / STEP }[event.key];
      if (event.ctrlKey || event.metaKey || event.altKey || (!by && event.key !== "0")) return;
      if (by) this.zoom(by); else this.fit();
      event.preventDefault();
    });
  }

  /** Take another drawing, in several turns of the browser: a large one takes a while. @param {string} text  SVG of the server. */
  async show(text) {
    const turn = ++this.turn;
    const plain = text.replace(/<style>[^]*?<\/style>/, "").replace(/ style="[^"]*"/, ""); // the page has the style
    const made = new DOMParser().parseFromString(plain, "text/html").querySelector("svg");
    if (!made) return;
    for (const line of made.querySelectorAll(".edge > .line")) { // a thin line is hard to hit
      const wide = /** @type {Element} */ (line.cloneNode());
      wide.setAttribute("class", "hit");
      wide.setAttribute("stroke-width", "16");
      line.before(wide);
    }
    await new Promise((done) => setTimeout(done));
    if (turn !== this.turn) return; // a newer one came
    const { scrollLeft, scrollTop } = this.canvas;
    const first = this.svg === null;
    this.svg = document.adoptNode(made);
    this.canvas.replaceChildren(this.svg);
    if (this.fitted) this.fit();
    if (first) this.center("START"); // a picture that does not fit begins there
    else {
      this.scale(this.factor);
      this.canvas.scrollLeft = scrollLeft;
      this.canvas.scrollTop = scrollTop;
    }
    this.stale(false);
    this.mark();
  }

  /** Whether the text is another one than that of the drawing. @param {boolean} on */
  stale(on) { this.canvas.classList.toggle("stale", on); }

  /** Mark a node, and those with faults. @param {string[]} path @param {Set<string>} [faulty] */
  choose(path, faulty = this.faulty) {
    this.here = path.join(".");
    this.faulty = faulty;
    this.mark();
  }

  mark() {
    for (const one of this.canvas.querySelectorAll(".here, .faulty")) one.classList.remove("here", "faulty");
    this.element(this.here)?.classList.add("here");
    for (const name of this.faulty) this.element(name)?.classList.add("faulty");
  }

  /** @param {string} name  A path with dots; of a node inside that is not drawn, the one around it. */
  element(name) {
    const found = this.svg && name ? this.svg.querySelector(`#${CSS.escape(`node-${name}`)}`) : null;
    return found ?? null;
  }

  /** Scroll to the chosen node, if it is out of view. */
  reach() {
    const element = this.element(this.here);
    if (!element) return;
    const box = element.getBoundingClientRect(), frame = this.canvas.getBoundingClientRect();
    if (box.right > frame.left + 20 && box.left < frame.right - 20 && box.bottom > frame.top + 20 && box.top < frame.bottom - 20) return;
    this.center(this.here);
  }

  /** Scroll to a node. @param {string} name */
  center(name) {
    const box = this.element(name)?.getBoundingClientRect(), frame = this.canvas.getBoundingClientRect();
    if (!box) return;
    this.canvas.scrollLeft += box.left + box.width / 2 - frame.left - frame.width / 2;
    this.canvas.scrollTop += box.top + box.height / 2 - frame.top - frame.height / 2;
  }

  /** @param {number} factor */
  scale(factor) {
    if (!this.svg) return;
    this.factor = Math.min(MOST, Math.max(LEAST, factor));
    const { width, height } = this.svg.viewBox.baseVal;
    this.svg.setAttribute("width", String(width * this.factor));
    this.svg.setAttribute("height", String(height * this.factor));
  }

  /** @param {number} by */
  zoom(by) {
    this.fitted = false;
    this.scale(this.factor * by);
  }

  fit() {
    this.fitted = true;
    if (!this.svg) return;
    const { width, height } = this.svg.viewBox.baseVal;
    this.scale(Math.max(leastFactor(this.svg), Math.min(1, (this.canvas.clientWidth - 4) / width, (this.canvas.clientHeight - 4) / height)));
  }
}

/** @param {SVGElement} element @param {string} name */
const pathOf = (element, name) => [...(element.dataset.path ?? "").split(/[./]/), name].filter(Boolean);
