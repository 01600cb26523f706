// The one picture of a run. A moment is the marks of its parts: classes and texts, and nothing else changes.

const MARKS = $MARKS;

class Picture {
  constructor(canvas, prefix, data, choose) {
    this.canvas = canvas;
    this.svg = canvas.querySelector("svg");
    this.prefix = prefix;
    this.moments = data.picture.moments;
    this.start = data.picture.start;
    this.parts = new Map();
    this.shown = new Map(); // part -> its mark as shown, as text
    this.size = [this.svg.viewBox.baseVal.width, this.svg.viewBox.baseVal.height];
    this.seq = null;
    const names = new Set(Object.keys(this.start));
    for (const [, changes] of this.moments) for (const name of Object.keys(changes)) names.add(name);
    for (const name of names) {
      const element = document.getElementById(prefix + "-" + name);
      if (!element) continue;
      const title = element.querySelector(":scope > title");
      this.parts.set(name, { element, title });
    }
    this.marks = new Map();
    this.svg.addEventListener("click", (event) => {
      const node = event.target.closest(".node");
      if (node) choose(node.id.slice(prefix.length + 1));
    });
    new ResizeObserver(() => { if (this.fitted) this.fit(); }).observe(canvas);
    this.fit();
  }

  show(seq) {
    if (seq === this.seq) return;
    const forward = this.seq !== null && seq > this.seq;
    const marks = forward ? this.marks : new Map(Object.entries(this.start));
    for (const [at, changes] of forward ? this.moments.slice(this.behind(this.seq)) : this.moments) {
      if (at > seq) break;
      for (const [name, mark] of Object.entries(changes)) marks.set(name, mark);
    }
    this.marks = marks;
    this.seq = seq;
    for (const [name, part] of this.parts) this.put(name, part, marks.get(name) ?? [""]);
  }

  // How many moments there are up to a record.
  behind(seq) {
    let low = 0, high = this.moments.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.moments[middle][0] <= seq) low = middle + 1; else high = middle;
    }
    return low;
  }

  put(name, { element, title }, [classes, texts]) {
    const told = classes + JSON.stringify(texts ?? 0);
    if (this.shown.get(name) === told) return;
    this.shown.set(name, told);
    element.classList.remove(...MARKS);
    if (classes) element.classList.add(...classes.split(" "));
    for (const slot of element.querySelectorAll("[data-slot]"))
      if (slot.closest("[id]") === element) slot.textContent = texts?.[slot.dataset.slot] ?? "";
    if (title) {
      title.dataset.own ??= title.textContent.split("\n").slice(0, 8).join("\n");
      title.textContent = texts?.told ? title.dataset.own + "\n" + texts.told : title.dataset.own;
    }
  }

  here(part) {
    this.svg.querySelector(".here")?.classList.remove("here");
    const element = part ? document.getElementById(this.prefix + "-" + part) : null;
    if (!element) return;
    element.classList.add("here");
    const box = element.getBoundingClientRect(), frame = this.canvas.getBoundingClientRect();
    if (box.right < frame.left + 20 || box.left > frame.right - 20 || box.bottom < frame.top + 20 || box.top > frame.bottom - 20) {
      this.canvas.scrollLeft += box.left + box.width / 2 - frame.left - frame.width / 2;
      this.canvas.scrollTop += box.top + box.height / 2 - frame.top - frame.height / 2;
    }
  }

  // -- size -----------------------------------------------------------------------------------------------------

  scale(factor) {
    this.factor = Math.min(4, Math.max(0.03, factor));
    this.svg.setAttribute("width", this.size[0] * this.factor);
    this.svg.setAttribute("height", this.size[1] * this.factor);
  }

  fit() {
    const [width, height] = this.size;
    this.scale(Math.max(0.35, Math.min(1, (this.canvas.clientWidth - 4) / width, (this.canvas.clientHeight - 4) / height)));
    this.fitted = true;
  }

  zoom(by) { this.fitted = false; this.scale(by === 0 ? 1 : this.factor * by); }
}
