// Bars between panes that move with the mouse and the keyboard. Where they were is remembered if the browser allows it.
const KEY = "agent-run-panes";
const LEAST = 18, STEP = 2;

/** Percent of the width that the panes have: the first, and the last. */
const BEGIN = { first: 40, last: 28 };

export class Splitters {
  /** @param {HTMLElement} panes  With bars in it that name the pane they size: `data-pane`. */
  constructor(panes) {
    this.panes = panes;
    this.sizes = { ...BEGIN, ...remembered() };
    /** @type {HTMLElement[]} */
    this.bars = [...panes.querySelectorAll(":scope > [role=separator]")].filter((bar) => bar instanceof HTMLElement);
    for (const bar of this.bars) {
      const pane = bar.dataset.pane === "last" ? "last" : "first";
      bar.addEventListener("pointerdown", (event) => this.drag(event, bar, pane));
      bar.addEventListener("keydown", (event) => this.press(event, pane));
      bar.addEventListener("dblclick", () => this.set(pane, BEGIN[pane]));
    }
    this.show();
  }

  /** @param {PointerEvent} event @param {HTMLElement} bar @param {"first" | "last"} pane */
  drag(event, bar, pane) {
    event.preventDefault();
    bar.focus();
    bar.setPointerCapture(event.pointerId);
    const move = (/** @type {PointerEvent} */ moved) => {
      const { left, right, width } = this.panes.getBoundingClientRect();
      this.set(pane, (100 * (pane === "first" ? moved.clientX - left : right - moved.clientX)) / width);
    };
    const end = () => { bar.removeEventListener("pointermove", move); };
    bar.addEventListener("pointermove", move);
    bar.addEventListener("pointerup", end, { once: true });
    bar.addEventListener("pointercancel", end, { once: true });
  }

  /** @param {KeyboardEvent} event @param {"first" | "last"} pane */
  press(event, pane) {
    const by = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key];
    const size = event.key === "Home" ? LEAST : event.key === "End" ? 100 : by ? this.sizes[pane] + (pane === "first" ? by : -by) : null;
    if (size === null) return;
    this.set(pane, size);
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {"first" | "last"} pane @param {number} size */
  set(pane, size) {
    const other = this.sizes[pane === "first" ? "last" : "first"];
    this.sizes[pane] = Math.round(10 * Math.min(100 - LEAST - other, Math.max(LEAST, size))) / 10;
    this.show();
    try { localStorage.setItem(KEY, JSON.stringify(this.sizes)); } catch { /* it is not allowed here */ }
  }

  show() {
    this.panes.style.setProperty("--first", this.sizes.first + "fr");
    this.panes.style.setProperty("--middle", 100 - this.sizes.first - this.sizes.last + "fr");
    this.panes.style.setProperty("--last", this.sizes.last + "fr");
    for (const bar of this.bars) bar.setAttribute("aria-valuenow", String(Math.round(this.sizes[bar.dataset.pane === "last" ? "last" : "first"])));
  }
}

/** @returns {Partial<typeof BEGIN>} */
function remembered() {
  try {
    const { first, last } = JSON.parse(localStorage.getItem(KEY) ?? "null");
    return first >= LEAST && last >= LEAST && first + last <= 100 - LEAST ? { first, last } : {};
  } catch { return {}; }
}
