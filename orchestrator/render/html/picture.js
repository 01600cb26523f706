// The one picture of a run, in two forms if graphs in it can be closed. A moment is the marks of its parts: classes and texts, and nothing else changes.

const MARKS = $MARKS;

class Picture {
  constructor(canvas, prefix, data, choose) {
    this.canvas = canvas;
    this.forms = [...canvas.querySelectorAll("svg.agent-graph")].map((svg, at) => ({ svg, prefix: prefix + ["-", "c-"][at] }));
    this.form = this.forms[0];
    this.moments = data.picture.moments;
    this.start = data.picture.start;
    this.parts = new Map();
    this.shown = new Map(); // part -> its mark as shown, as text
    this.seq = null;
    const names = new Set(Object.keys(this.start));
    for (const [, changes] of this.moments) for (const name of Object.keys(changes)) names.add(name);
    for (const name of names) {
      const found = this.forms.map((form) => document.getElementById(form.prefix + name)).filter(Boolean);
      if (found.length) this.parts.set(name, found.map((element) => ({ element, title: element.querySelector(":scope > title") })));
    }
    this.marks = new Map();
    for (const form of this.forms)
      form.svg.addEventListener("click", (event) => {
        const node = event.target.closest(".node");
        if (node) choose(node.id.slice(form.prefix.length));
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

  put(name, parts, [classes, texts]) {
    const told = classes + JSON.stringify(texts ?? 0);
    if (this.shown.get(name) === told) return;
    this.shown.set(name, told);
    for (const part of parts) this.mark(part, classes, texts);
  }

  mark({ element, title }, classes, texts) {
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
    this.canvas.querySelectorAll(".here").forEach((element) => element.classList.remove("here"));
    this.part = part;
    let name = part, element = null;
    while (name && !(element = document.getElementById(this.form.prefix + name)) && name.includes("."))
      name = name.slice(0, name.lastIndexOf(".")); // it is inside of a node that is closed
    if (!element) return;
    element.classList.add("here");
    const box = element.getBoundingClientRect(), frame = this.canvas.getBoundingClientRect();
    if (box.right < frame.left + 20 || box.left > frame.right - 20 || box.bottom < frame.top + 20 || box.top > frame.bottom - 20) {
      this.canvas.scrollLeft += box.left + box.width / 2 - frame.left - frame.width / 2;
      this.canvas.scrollTop += box.top + box.height / 2 - frame.top - frame.height / 2;
    }
  }

  // -- size -----------------------------------------------------------------------------------------------------

  get size() {
    const { width, height } = this.form.svg.viewBox.baseVal;
    return [width, height];
  }

  scale(factor) {
    this.factor = Math.min(4, Math.max(0.03, factor));
    this.form.svg.setAttribute("width", this.size[0] * this.factor);
    this.form.svg.setAttribute("height", this.size[1] * this.factor);
  }

  fold(closed) {
    this.form = this.forms[closed ? 1 : 0];
    for (const form of this.forms) form.svg.toggleAttribute("hidden", form !== this.form);
    this.fit();
    this.here(this.part);
  }

  fit() {
    const [width, height] = this.size;
    this.scale(Math.max(0.35, Math.min(1, (this.canvas.clientWidth - 4) / width, (this.canvas.clientHeight - 4) / height)));
    this.fitted = true;
  }

  zoom(by) { this.fitted = false; this.scale(by === 0 ? 1 : this.factor * by); }
}
