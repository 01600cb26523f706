// The list of steps. Only the rows that are seen are there, so that thousands of them cost nothing.
import { make } from "./elements.js";
import { rowElement } from "./step_row.js";
import { lasting } from "./texts.js";
import { TimeAxis } from "./time_axis.js";

/** @import { Outline, Row } from "./outline.js" */

const ROW = 28;
const SPARE = 6;

export class StepList {
  /**
   * @param {Outline} outline
   * @param {HTMLElement} box
   * @param {HTMLElement} scale
   * @param {(row: Row, twisted: boolean) => void} choose  A row was clicked, perhaps on what folds it.
   */
  constructor(outline, box, scale, choose) {
    this.outline = outline;
    this.box = box;
    this.scale = scale;
    this.tall = make("div", { class: "tall", role: "presentation" });
    box.append(this.tall);
    /** @type {Map<string, HTMLElement>} */
    this.made = new Map();
    this.chosen = -1;
    this.seq = 0;
    /** Steps that took the chosen edge. @type {Set<number>} */
    this.linked = new Set();
    this.squeezed = true;
    this.axis = new TimeAxis(outline.data, true);
    box.addEventListener("scroll", () => this.draw());
    box.addEventListener("click", (event) => {
      const target = /** @type {Element} */ (event.target), row = this.rowAt(target);
      if (row) choose(row, target.closest(".twist") !== null);
    });
    new ResizeObserver(() => this.draw()).observe(box);
    this.setAxis(true);
  }

  /** @param {Element} element @returns {Row | null} */
  rowAt(element) {
    const key = /** @type {HTMLElement | null} */ (element.closest(".row"))?.dataset.key;
    return key === undefined ? null : this.outline.rows[this.outline.placeOf.get(key) ?? -1] ?? null;
  }

  /** @param {boolean} squeezed */
  setAxis(squeezed) {
    this.squeezed = squeezed;
    this.axis = new TimeAxis(this.outline.data, squeezed);
    const last = make("span", {}, lasting(this.axis.span / 1000));
    last.style.right = "0";
    this.scale.replaceChildren(make("span", {}, "0"), last);
    for (const [from, to] of this.axis.cuts) {
      if (this.axis.percent(from) < 8 || this.axis.percent(to) > 70) continue; // it would stand on the numbers at the ends
      const note = make("span", { class: "gap", title: lasting((to - from) / 1000) + " idle" }, "//");
      note.style.left = this.axis.percent(from) + "%";
      this.scale.append(note);
    }
    this.drawAgain();
  }

  /** Other rows, or the same with other contents. */
  drawAgain() {
    this.made.forEach((row) => row.remove());
    this.made.clear();
    this.draw();
  }

  draw() {
    const { rows } = this.outline;
    this.tall.style.height = rows.length * ROW + "px";
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - SPARE);
    const last = Math.min(rows.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW) + SPARE);
    const wanted = new Set(rows.slice(first, last).map((row) => row.key));
    for (const [key, row] of this.made) if (!wanted.has(key)) { row.remove(); this.made.delete(key); }
    const chosen = this.outline.rowOf(this.chosen)?.key;
    for (let place = first; place < last; place++) {
      const row = rows[place];
      let element = this.made.get(row.key);
      if (!element) {
        element = rowElement(this.outline, row, this.axis, this.box.id + "-" + row.key.replaceAll(":", "-"));
        this.made.set(row.key, element);
      }
      element.style.top = place * ROW + "px";
      element.setAttribute("aria-selected", String(row.key === chosen));
      element.classList.toggle("later", this.outline.data.steps[row.index].began > this.seq);
      element.classList.toggle("linked", row.kind === "step" && this.linked.has(row.index));
      if (this.tall.children[place - first] !== element) this.tall.insertBefore(element, this.tall.children[place - first] ?? null);
    }
    const shown = chosen === undefined ? undefined : this.made.get(chosen);
    if (shown) this.box.setAttribute("aria-activedescendant", shown.id);
    else this.box.removeAttribute("aria-activedescendant");
    this.box.style.setProperty("--now", this.axis.percent(this.outline.data.time(this.seq || 1)) + "%");
  }

  /**
   * Show a step as chosen, in the run as it was at a record.
   * @param {number} index
   * @param {number} seq
   * @param {boolean} still  Whether the list keeps its place.
   */
  show(index, seq, still = false) {
    this.chosen = index;
    this.seq = seq;
    const row = this.outline.rowOf(index), place = row ? this.outline.placeOf.get(row.key) : undefined;
    if (place !== undefined && !still) {
      const top = place * ROW;
      if (top < this.box.scrollTop) this.box.scrollTop = top;
      else if (top + ROW > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + ROW - this.box.clientHeight;
    }
    this.draw();
  }

  /** Scroll the window, too, so that the chosen row is seen. */
  bringIntoView() {
    const row = this.tall.querySelector("[aria-selected=true]");
    if (!row) return;
    const { top, bottom } = row.getBoundingClientRect();
    if (top < 0 || bottom > window.innerHeight) row.scrollIntoView({ block: "center" });
  }
}
