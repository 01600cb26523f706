// The list of steps. Only the rows that are seen are there, so that thousands of them cost nothing.
import { make } from "./elements.js";
import { placeBar, renew, rowElement } from "./step_row.js";
import { lasting } from "./texts.js";
import { shifted, TimeAxis, WHOLE, zoomed } from "./time_axis.js";

/** @import { Outline, Row } from "./outline.js" */

const ROW = 28;
const SPARE = 6;

export class StepList {
  /**
   * @param {Outline} outline
   * @param {HTMLElement} box
   * @param {HTMLElement} scale
   * @param {{ row: (row: Row, twisted: boolean) => void, part: (whole: boolean) => void }} chosen  A row was clicked,
   *   perhaps on what folds it; another part of the time is seen.
   */
  constructor(outline, box, scale, chosen) {
    this.outline = outline;
    this.looked = chosen.part;
    this.box = box;
    this.scale = scale;
    this.cursor = make("span", { class: "cursor", hidden: true });
    this.tall = make("div", { class: "tall", role: "presentation" });
    box.append(this.tall);
    /** @type {Map<string, HTMLElement>} */
    this.made = new Map();
    this.chosen = -1;
    this.seq = 0;
    /** Steps that took the chosen edge. @type {Set<number>} */
    this.linked = new Set();
    this.squeezed = true;
    /** The part of the time that is seen. */
    this.part = WHOLE;
    this.axis = new TimeAxis(outline.data, true);
    box.addEventListener("scroll", () => this.draw());
    box.addEventListener("click", (event) => {
      const target = /** @type {Element} */ (event.target), row = this.rowAt(target);
      if (row && !this.dragged) chosen.row(row, target.closest(".twist") !== null);
    });
    new ResizeObserver(() => this.draw()).observe(box);
    this.dragged = false;
    this.listen();
    this.setAxis(true);
  }

  /** The wheel and the pointer on the bars: another part of the time. */
  listen() {
    const { box } = this;
    box.addEventListener("wheel", (event) => {
      const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
      if (event.ctrlKey) this.zoom(Math.exp(-event.deltaY / 300), this.pointed(event) ?? 0.5);
      else if (sideways && this.part !== WHOLE) this.look(shifted(this.part, (sideways / 800) * (this.part.to - this.part.from)));
      else return;
      event.preventDefault();
    }, { passive: false });
    box.addEventListener("pointermove", (event) => this.point(this.pointed(event)));
    box.addEventListener("pointerleave", () => this.point(null));
    box.addEventListener("pointerdown", (event) => {
      const at = this.pointed(event), { part } = this;
      this.dragged = false;
      if (at === null || event.button || part === WHOLE) return;
      const move = (/** @type {PointerEvent} */ moved) => {
        const by = at - (this.pointed(moved, true) ?? at);
        if (!this.dragged && Math.abs(moved.clientX - event.clientX) < 4) return;
        this.dragged = true;
        this.look(shifted(part, by * (part.to - part.from)));
      };
      window.addEventListener("pointermove", move);
      const end = () => window.removeEventListener("pointermove", move);
      window.addEventListener("pointerup", end, { once: true });
      window.addEventListener("pointercancel", end, { once: true });
    });
  }

  /**
   * Where on the bars a pointer is, from 0 to 1; null: it is elsewhere.
   * @param {MouseEvent} event
   * @param {boolean} outside  Also beside them.
   */
  pointed(event, outside = false) {
    const { left, right, width } = this.scale.getBoundingClientRect();
    if (!width || (!outside && (event.clientX < left || event.clientX > right))) return null;
    return (event.clientX - left) / width;
  }

  /** Say which time is under the pointer. @param {number | null} at */
  point(at) {
    this.box.classList.toggle("pointed", at !== null);
    this.cursor.hidden = at === null;
    this.scale.classList.toggle("pointed", at !== null);
    if (at === null) return;
    this.box.style.setProperty("--cursor", 100 * at + "%");
    this.cursor.textContent = this.outline.data.clock(this.axis.time(100 * at));
    this.cursor.style.left = Math.min(Math.max(100 * at, 8), 92) + "%";
  }

  /**
   * Show a shorter part of the time, or a longer one.
   * @param {number} factor  0: all of it.
   * @param {number} at  The place on the bars that stays, from 0 to 1.
   */
  zoom(factor, at = this.part.to >= 1 ? 1 : 0.5) { this.look(factor ? zoomed(this.part, factor, at) : WHOLE); }

  /** @param {import("./time_axis.js").Part} part */
  look(part) {
    this.part = part.to - part.from > 0.999 ? WHOLE : part;
    this.box.classList.toggle("zoomed", this.part !== WHOLE);
    this.setAxis(this.squeezed);
    this.looked(this.part === WHOLE);
  }

  /** @param {Element} element @returns {Row | null} */
  rowAt(element) {
    const key = /** @type {HTMLElement | null} */ (element.closest(".row"))?.dataset.key;
    return key === undefined ? null : this.outline.rows[this.outline.placeOf.get(key) ?? -1] ?? null;
  }

  /** @param {boolean} squeezed */
  setAxis(squeezed) {
    this.squeezed = squeezed;
    const { part } = this;
    this.axis = new TimeAxis(this.outline.data, squeezed, part.to > 0.9999 ? { from: part.from, to: 1 } : part);
    const [first, last] = [0, 100].map((at) => make("span", {}, part === WHOLE && !at ? "0" : this.outline.data.clock(this.axis.time(at))));
    last.style.right = "0";
    this.scale.replaceChildren(first, last, this.cursor);
    for (const [from, to] of this.axis.cuts) {
      if (this.axis.percent(from) < 8 || this.axis.percent(to) > 70) continue; // it would stand on the numbers at the ends
      const note = make("span", { class: "gap", title: lasting((to - from) / 1000) + " idle" }, "//");
      note.style.left = this.axis.percent(from) + "%";
      this.scale.append(note);
    }
    const { data } = this.outline;
    for (const [key, element] of this.made) {
      const row = this.outline.rows[this.outline.placeOf.get(key) ?? -1];
      if (row && data.steps[row.index]) placeBar(this.outline, row, this.axis, element);
    }
    this.draw();
  }

  /**
   * The run has more steps, or others than before, and takes longer. Rows stay as they are where nothing became of them.
   * @param {Set<number>} touched  Steps that are other than before.
   */
  grow(touched) {
    const { outline } = this, changed = new Set();
    for (const index of touched)
      for (let row = outline.stepRows.get(index) ?? null; row; row = row.around) changed.add(row.key);
    for (const [key, element] of this.made) {
      const row = outline.rows[outline.placeOf.get(key) ?? -1];
      if (row && changed.has(key)) renew(element, rowElement(outline, row, this.axis, element.id));
    }
    this.setAxis(this.squeezed);
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
