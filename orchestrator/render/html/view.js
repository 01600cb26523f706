// One run on the page: its slider, picture, steps and details move together.

class View {
  constructor(prefix, data, moved) {
    this.prefix = prefix;
    this.data = new RunData(data);
    this.moved = moved;
    this.tab = "step";
    this.seq = 0;
    this.index = -1;
    this.timer = null;
    this.slider = this.at("slider");
    this.picture = new Picture(this.at("canvas"), prefix, this.data, (part) => this.chooseNode(part));
    this.list = new StepList(this, this.at("rows"), this.at("scale"));
    this.detail = new Detail(this, this.at("panel"));
    this.facts();
    this.listen();
  }

  at(name) { return document.getElementById(this.prefix + "-" + name); }

  // -- moving ---------------------------------------------------------------------------------------------------

  // Show the run as it was behind a record.
  go(seq, index = null, quiet = false) {
    seq = Math.min(Math.max(1, Math.round(seq) || 1), this.data.head);
    this.index = index ?? this.data.stepAt(seq);
    this.seq = seq;
    this.slider.value = seq;
    const time = lasting(this.data.time(seq) / 1000);
    const step = this.index < 0 ? "" : ", step " + (this.index + 1) + " of " + this.data.steps.length;
    this.slider.setAttribute("aria-valuetext", "record " + seq + " of " + this.data.head + step);
    this.at("moment").textContent = "record " + seq + "/" + this.data.head + " · " + this.data.type(seq) + " · " + time;
    this.picture.show(seq);
    this.picture.here(this.index < 0 ? null : this.data.steps[this.index].part);
    this.list.show(this.index, seq);
    this.detailAgain();
    if (!quiet) this.moved(this);
  }

  choose(index, quiet = false) {
    if (index === undefined || index < 0 || index >= this.data.steps.length) return;
    this.go(this.data.seqOf(index), index, quiet);
  }

  // The steps of a node that was clicked on, one after the other.
  chooseNode(part) {
    const found = this.data.steps.filter((step) => step.part === part).map((step) => step.index);
    if (found.length) this.choose(found.find((index) => index > this.index) ?? found[0]);
  }

  step(by) { this.choose(this.list.beside(by)); }

  show(tab, quiet = false) {
    if (!["step", "state", "model", "tools", "run"].includes(tab)) return;
    this.tab = tab;
    for (const name of ["step", "state", "model", "tools", "run"]) {
      const button = this.at("tab-" + name);
      button.setAttribute("aria-selected", String(name === tab));
      button.tabIndex = name === tab ? 0 : -1;
    }
    this.at("panel").setAttribute("aria-labelledby", this.prefix + "-tab-" + tab);
    this.detailAgain();
    if (!quiet) this.moved(this);
  }

  detailAgain() { this.detail.show(this.tab, this.index); }

  // -- playing --------------------------------------------------------------------------------------------------

  play() {
    if (this.timer !== null) { this.pause(); return; }
    const button = this.at("play");
    button.setAttribute("aria-pressed", "true");
    if (this.seq >= this.data.head) this.go(1);
    // A short run goes record by record; a long one takes about half a minute.
    const stride = Math.max(1, Math.round(this.data.head / 100));
    this.timer = setInterval(() => {
      this.go(this.seq + stride);
      if (this.seq >= this.data.head) this.pause();
    }, 320);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.at("play").setAttribute("aria-pressed", "false");
  }

  // -- the rest -------------------------------------------------------------------------------------------------

  search(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const count = this.list.filter(words);
    this.at("found").textContent = words.length ? number(count) + " of " + number(this.data.steps.length) + " steps" : "";
    if (words.length && count && !this.list.shown.includes(this.index)) this.choose(this.list.shown[0]);
    else this.list.show(this.index, this.seq);
  }

  facts() {
    const { data } = this;
    const waited = data.idle.reduce((sum, [from, to]) => sum + to - from, 0) / 1000;
    const facts = [
      ["steps", number(data.counted)], ["calls", number(data.usage.calls)],
      ["tokens", data.usage.in || data.usage.out ? number(data.usage.in) + " in, " + number(data.usage.out) + " out" : "0"],
      ["cost", data.usage.cost ? money(data.usage.cost) : ""],
      ["took", lasting(data.span / 1000)], ["idle", waited >= 0.5 ? lasting(waited) : ""],
      ["began", new Date(data.start * 1000).toLocaleString()],
    ];
    this.at("facts").append(...facts.filter(([, value]) => value).map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  }

  listen() {
    const click = (name, act) => this.at(name).addEventListener("click", act);
    click("first", () => this.go(1));
    click("back", () => this.step(-1));
    click("play", () => this.play());
    click("next", () => this.step(1));
    click("last", () => this.go(this.data.head));
    click("in", () => this.picture.zoom(1.25));
    click("out", () => this.picture.zoom(0.8));
    click("fit", () => this.picture.fit());
    click("real", () => this.picture.zoom(0));
    this.at("fold")?.addEventListener("click", (event) => {
      const closed = event.currentTarget.getAttribute("aria-pressed") !== "true";
      event.currentTarget.setAttribute("aria-pressed", String(closed));
      this.picture.fold(closed);
    });
    this.slider.addEventListener("input", () => { this.pause(); this.go(Number(this.slider.value)); });
    this.at("search").addEventListener("input", (event) => this.search(event.target.value));
    this.at("squeeze").addEventListener("change", (event) => this.list.setAxis(event.target.checked));
    for (const name of ["step", "state", "model", "tools", "run"]) {
      const button = this.at("tab-" + name);
      button.addEventListener("click", () => this.show(name));
      button.addEventListener("keydown", (event) => {
        const order = ["step", "state", "model", "tools", "run"];
        const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!by) return;
        const next = order[(order.indexOf(name) + by + order.length) % order.length];
        this.show(next);
        this.at("tab-" + next).focus();
        event.preventDefault();
        event.stopPropagation();
      });
    }
  }
}
