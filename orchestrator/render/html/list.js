// The steps and when they ran: only the rows that are seen are there, so that thousands of them cost nothing.

const ROW = 28;
const SIGNS = { done: "✓", passed: "»", faulty: "!", failed: "✗", waiting: "‖", running: "▸", interrupted: "▹", dropped: "⊘" };

class StepList {
  constructor(view, box, scale) {
    this.view = view;
    this.data = view.data;
    this.box = box;
    this.scaleBox = scale;
    this.tall = make("div", { class: "tall", role: "presentation" });
    this.spare = make("div", { role: "presentation" });
    box.append(this.tall);
    this.made = new Map();
    this.shown = this.data.steps.map((step) => step.index);
    this.chosen = -1;
    this.seq = this.data.head;
    box.addEventListener("scroll", () => this.draw());
    box.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) view.choose(Number(row.dataset.index));
    });
    new ResizeObserver(() => this.draw()).observe(box);
    this.setAxis(true);
  }

  // -- time -> place --------------------------------------------------------------------------------------------

  // With the waiting left out, each idle time has the width of a fortieth of the work.
  setAxis(squeezed) {
    const span = this.data.span;
    this.cuts = [];
    if (squeezed) {
      const idle = this.data.idle.filter(([from, to]) => to > from);
      const total = idle.reduce((sum, [from, to]) => sum + to - from, 0);
      const width = Math.max(1, (span - total) / 40);
      for (const [from, to] of idle) if (to - from > Math.max(width, 30)) this.cuts.push([from, to, width]);
    }
    this.length = Math.max(1, this.place(span));
    this.marks();
    this.made.forEach((row) => row.remove());
    this.made.clear();
    this.draw();
  }

  place(time) {
    let less = 0;
    for (const [from, to, width] of this.cuts) {
      if (time <= from) break;
      less += time >= to ? to - from - width : (time - from) * (1 - width / (to - from));
    }
    return time - less;
  }

  percent(time) { return (100 * this.place(time)) / this.length; }

  marks() {
    const span = this.data.span;
    this.scaleBox.replaceChildren();
    const first = make("span", {}, "0"), last = make("span", {}, lasting(span / 1000));
    last.style.right = "0";
    this.scaleBox.append(first, last);
    for (const [from, to] of this.cuts) {
      if (this.percent(from) < 4 || this.percent(to) > 92) continue; // it would stand on the numbers at the ends
      const note = make("span", { title: lasting((to - from) / 1000) + " idle" }, "//");
      note.style.left = this.percent(from) + "%";
      this.scaleBox.append(note);
    }
  }

  // -- rows -----------------------------------------------------------------------------------------------------

  filter(words) {
    const { steps } = this.data;
    this.shown = words.length ? steps.map((step) => step.index).filter((index) => this.data.matches(index, words)) : steps.map((step) => step.index);
    this.placeOf = new Map(this.shown.map((index, place) => [index, place]));
    this.made.forEach((row) => row.remove());
    this.made.clear();
    this.draw();
    return this.shown.length;
  }

  draw() {
    this.tall.style.height = this.shown.length * ROW + "px";
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - 6);
    const last = Math.min(this.shown.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW) + 6);
    const wanted = new Set(this.shown.slice(first, last));
    for (const [index, row] of this.made) if (!wanted.has(index)) { row.remove(); this.made.delete(index); }
    for (let place = first; place < last; place++) {
      const index = this.shown[place];
      let row = this.made.get(index);
      if (!row) this.made.set(index, (row = this.row(index, place)));
      this.state(row, index);
      if (this.tall.children[place - first] !== row) this.tall.insertBefore(row, this.tall.children[place - first] ?? null);
    }
    if (this.made.has(this.chosen)) this.box.setAttribute("aria-activedescendant", this.made.get(this.chosen).id);
    else this.box.removeAttribute("aria-activedescendant");
  }

  row(index, place) {
    const step = this.data.steps[index];
    const name = make("span", {}, sign(looksOf(step)), make("span", { class: "data" }, visible(step.node)));
    name.style.paddingLeft = (step.depth ?? 0) * 14 + "px";
    if (step.path) name.append(make("span", { class: "path data" }, "  " + visible(step.path)));
    const row = make(
      "div",
      { class: "row", role: "option", id: this.view.prefix + "-row-" + index, "data-index": index, "aria-posinset": place + 1, "aria-setsize": this.shown.length },
      make("span", { class: "no" }, String(index + 1)),
      name,
      make("span", { class: "data" }, step.status === "done" ? visible(step.outcome ?? "") : step.status),
      make("span", { class: "n" }, lasting(step.work)),
      make("span", { class: "n tok" }, tokens(step.usage) ? number(tokens(step.usage)) : ""),
      this.track(step),
    );
    row.style.top = place * ROW + "px";
    return row;
  }

  track(step) {
    const end = this.data.span;
    const bar = (from, to, kind, title) => {
      const left = Math.min(this.percent(from), 99.5); // what just began is seen, too
      const part = make("i", { class: kind, title });
      part.style.left = left + "%";
      part.style.width = Math.max(0, this.percent(to ?? end) - left) + "%";
      return part;
    };
    const track = make("span", { class: "track" });
    const inside = step.index + 1 < this.data.steps.length && this.data.steps[step.index + 1].up === step.index;
    const [began, ended] = [step.t[0], step.t[1] ?? end];
    let at = began;
    const waits = step.waits ?? [];
    for (const [why, from, to] of waits) {
      if (from > at) track.append(bar(at, from, looksOf(step)));
      track.append(bar(Math.max(from, at), to, "wait " + why, WAITS[why] + ", " + lasting(((to ?? end) - from) / 1000)));
      at = Math.max(at, to ?? end);
    }
    if (ended > at || !waits.length) track.append(bar(at, ended, looksOf(step) + (inside ? " graph" : ""), lasting((ended - began) / 1000)));
    return track;
  }

  state(row, index) {
    row.setAttribute("aria-selected", index === this.chosen ? "true" : "false");
    row.classList.toggle("later", this.data.steps[index].began > this.seq);
  }

  show(index, seq) {
    this.chosen = index;
    this.seq = seq;
    const place = this.placeOf ? this.placeOf.get(index) : index;
    if (place !== undefined && place >= 0) {
      const top = place * ROW;
      if (top < this.box.scrollTop) this.box.scrollTop = top;
      else if (top + ROW > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + ROW - this.box.clientHeight;
    }
    this.draw();
  }

  // The shown step before or behind the chosen one.
  beside(by) {
    const place = this.placeOf ? (this.placeOf.get(this.chosen) ?? -1) : this.chosen;
    return this.shown[Math.min(this.shown.length - 1, Math.max(0, place + by))];
  }
}

const WAITS = { person: "waited for an answer", event: "waited for an event", timer: "waited for a time", retry: "waited for another attempt", stopped: "nobody drove the run" };
// A step that failed looks like it also where an edge took that and the run went on.
const looksOf = (step) => (step.status !== "done" ? step.status : step.error && step.outcome !== "exhausted" ? "failed" : step.failed ? "faulty" : step.unasked ? "passed" : "done");
const sign = (status) => make("span", { class: "mark " + status, "aria-label": status === "faulty" ? "done, a call failed" : status, title: status === "faulty" ? "a call failed" : status, role: "img" }, SIGNS[status] ?? "");
