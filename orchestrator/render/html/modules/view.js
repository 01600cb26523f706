// One run on the page: its summary, slider, list, picture and panel move together.
import { Detail } from "./detail.js";
import { byId, make, present } from "./elements.js";
import { Filters } from "./filters.js";
import { GoOn } from "./go_on.js";
import { Notes } from "./notes.js";
import { Outline } from "./outline.js";
import { Picture } from "./picture.js";
import { RunData } from "./run_data.js";
import { hitOf, SearchMarks, wordsOf } from "./search_marks.js";
import { Splitters } from "./splitters.js";
import { StepList } from "./step_list.js";
import { Summary } from "./summary.js";
import { number, visible } from "./texts.js";
import { TimeAxis } from "./time_axis.js";
import { Transcript } from "./transcript.js";

/** @import { Visit } from "./address.js" */
/** @import { Tab } from "./detail.js" */
/** @import { Choice } from "./choice.js" */
/** @import { Row } from "./outline.js" */
/** @import { Action, Source } from "./source.js" */
/** @import { RunChange, RunDocument } from "./types.js" */

const MOVE = 320, STRIDES = 100;

export class RunView {
  /**
   * @param {string} prefix  Of the ids of its elements.
   * @param {RunDocument} run
   * @param {Source} source
   * @param {(view: RunView) => void} moved  A reader looks at something else.
   */
  constructor(prefix, run, source, moved) {
    this.prefix = prefix;
    this.source = source;
    this.moved = moved;
    this.data = new RunData(run);
    /** @type {Tab} */
    this.tab = "step";
    this.seq = 0;
    this.index = -1;
    /** @type {string | null} */
    this.edge = null;
    this.following = source.live;
    /** Names of the actions that are offered. */
    this.offered = "";
    /** @type {ReturnType<typeof setInterval> | null} */
    this.timer = null;
    this.slider = /** @type {HTMLInputElement} */ (this.at("slider"));
    this.summary = new Summary(prefix, (index) => { this.tab = "step"; this.choose(index); this.list.bringIntoView(); });
    this.outline = new Outline(this.data);
    this.picture = new Picture(this.at("canvas"), prefix, this.data, { node: (part) => this.chooseNode(part), edge: (edge) => this.pick(edge) });
    this.list = new StepList(this.outline, this.at("rows"), this.at("scale"), { row: (row, twisted) => this.click(row, twisted), part: (whole) => this.zoomed(whole) });
    this.filters = new Filters(prefix, this.outline, (choice) => this.filter(choice));
    this.notes = new Notes(source.notes, () => { this.detail.renew(this.detail.look); this.summary.show(this.data, this.notes.count); });
    this.detail = new Detail(prefix, this.data, this.notes, source.code, { tab: (tab) => this.show(tab), edge: (edge) => this.pick(edge), step: (index) => { this.edge = null; this.choose(index); }, go: (index, seq) => this.goOn.open(index, seq) });
    this.talk = new Transcript(prefix, this.data, source.talk?.bind(source) ?? null, { step: (index, seq) => this.find(index, seq), change: (index, seq) => this.goOn.open(index, seq), moved: () => this.moved(this) });
    this.goOn = new GoOn(this.data, source, () => this.moved(this));
    this.marks = new SearchMarks([this.at("talk"), this.at("panel")]);
    /** Words of the address that no step of what the page has so far contains. */
    this.sought = "";
    /** A step that the page does not have yet, and is gone to when it has. @type {Pick<Visit, "step" | "seq" | "fork"> | null} */
    this.awaited = null;
    this.splitters = new Splitters(this.at("panes"));
    this.summary.show(this.data);
    this.listen();
    this.idle();
    this.offer();
  }

  /** @param {string} name */
  at(name) { return byId(this.prefix + "-" + name); }

  // -- moving ---------------------------------------------------------------------------------------------------

  /**
   * Show the run as it was behind a record.
   * @param {number} seq
   * @param {number | null} index  The step to look at.
   * @param {boolean} quiet  Whether the address and other runs stay as they are.
   */
  go(seq, index = null, quiet = false) {
    this.seq = Math.min(Math.max(1, Math.round(seq) || 1), this.data.head);
    this.index = index ?? this.data.stepAt(this.seq);
    if (this.index >= 0) this.outline.reveal(this.index);
    this.draw();
    if (!quiet) { this.sought = ""; this.awaited = null; this.follow(this.seq === this.data.head && this.following); this.moved(this); }
  }

  /** Go to the step of an entry of the transcript. @param {number} index  -1: the page does not have it yet. @param {number} seq */
  find(index, seq) {
    this.edge = null;
    if (index >= 0) this.choose(index);
    else this.wait({ step: null, seq, fork: null });
    this.list.bringIntoView();
  }

  /** Go to a step as soon as the page has it. @param {NonNullable<RunView["awaited"]>} awaited */
  wait(awaited) {
    const { step, seq, fork } = awaited, { data } = this, there = step === null ? (seq ?? 0) <= data.head : step <= data.steps.length;
    this.awaited = there || !data.behind ? null : awaited;
    this.at("said").textContent = this.pending;
    if (!there) return;
    const index = step === null ? data.within.get(seq ?? 0) ?? null : step - 1;
    this.follow(false);
    if (index === null) this.go(seq ?? data.head, null, true);
    else this.choose(index, true);
    this.list.bringIntoView();
    this.moved(this);
    if (fork !== null) this.goOn.arrive(this.index, fork);
  }

  /** What the page waits for, in words. */
  get pending() {
    const { step = null, seq = null } = this.awaited ?? {};
    return step !== null ? "Step " + number(step) + " is read …" : seq !== null ? "Record " + number(seq) + " is read …" : "";
  }

  /** Go to the first step with the words of a search, and show them there. @param {string} text */
  seek(text) {
    const { data } = this, complete = !data.behind, hit = hitOf(data, text, complete);
    this.sought = hit || complete ? "" : text;
    if (!hit) return;
    if (!hit.whole) this.filter({ ...this.outline.choice, text: "" }, true); // no step has all of it
    this.marks.look(hit.words);
    this.tab = hit.tab;
    this.edge = null;
    this.follow(false);
    this.choose(hit.index, true);
    this.marks.reveal();
  }

  draw() {
    this.drawMoment(false);
    this.detail.show({ tab: this.tab, index: this.index, edge: this.edge });
  }

  /** Show the moment on the slider, in the picture and in the list. @param {boolean} still  Whether the list keeps its place. */
  drawMoment(still) {
    const { data, seq, index } = this, step = data.steps[index];
    this.slider.max = String(data.head);
    this.slider.value = String(seq);
    this.slider.setAttribute("aria-valuetext", "record " + seq + " of " + data.head + (step ? ", step " + (index + 1) + " of " + data.steps.length : ""));
    this.at("moment").textContent = "record " + number(seq) + "/" + number(data.head) + " · " + data.type(seq) + " · " + data.clock(data.time(seq));
    this.picture.show(seq);
    this.picture.here(step?.part ?? "", step?.took ?? [], this.edge);
    this.list.linked = new Set(this.edge ? data.edge(this.edge).took : []);
    this.list.show(index, seq, still);
    this.talk.here(index, this.following);
  }

  /** @param {number | undefined} index @param {boolean} quiet */
  choose(index, quiet = false) {
    if (index === undefined || index < 0 || index >= this.data.steps.length) return;
    this.go(this.data.seqOf(index), index, quiet);
  }

  /** The steps of a node that was clicked on, one after the other. @param {string} part */
  chooseNode(part) {
    const found = this.data.steps.flatMap((step, index) => (step.part === part ? [index] : []));
    this.edge = null;
    if (found.length) this.choose(found.find((index) => index > this.index) ?? found[0]);
  }

  /** Look at an edge, or at the step again. @param {string | null} edge */
  pick(edge) {
    this.edge = edge;
    this.tab = "step";
    this.draw();
    this.moved(this);
  }

  /** @param {number} by */
  step(by) { this.choose(this.outline.beside(this.index, by)); }

  /** @param {Tab} tab @param {boolean} quiet */
  show(tab, quiet = false) {
    this.tab = tab;
    this.detail.show({ tab, index: this.index, edge: this.edge });
    if (!quiet) this.moved(this);
  }

  // -- the list -------------------------------------------------------------------------------------------------

  /** @param {Row} row @param {boolean} twisted */
  click(row, twisted) {
    this.box.focus({ preventScroll: true });
    if (twisted || row.kind === "map" || row.kind === "item") { this.outline.fold(row); this.list.drawAgain(); }
    else { this.edge = null; this.choose(row.index); }
  }

  /** Arrows in the tree: open, close, go to what is around. @param {boolean} open */
  turn(open) {
    const row = this.outline.rowOf(this.index);
    if (!row || this.outline.flat) return;
    const closed = this.outline.closed.has(row.key);
    if (open) { if (closed) this.outline.fold(row, true); }
    else if (row.inside.length && !closed) this.outline.fold(row, false);
    else if (row.around?.kind === "step") { this.choose(row.around.index); return; }
    else if (row.around) this.outline.fold(row.around, false);
    this.list.drawAgain();
    this.list.show(this.index, this.seq);
  }

  foldAll() {
    this.outline.foldAll();
    this.list.drawAgain();
    this.list.show(this.index, this.seq);
  }

  /** @param {Choice} choice @param {boolean} quiet */
  filter(choice, quiet = false) {
    const count = this.outline.choose(choice);
    this.marks.look(wordsOf(choice.text));
    this.filters.show(count);
    this.list.box.scrollTop = 0;
    this.list.drawAgain();
    this.at("empty").hidden = count > 0;
    if (!quiet && this.outline.narrowed && count && !this.outline.rowOf(this.index)) this.choose(this.outline.line[0].index);
    else this.list.show(this.index, this.seq);
    if (!quiet) this.moved(this);
  }

  // -- a run that grows -----------------------------------------------------------------------------------------

  /** Take what became of the run. A reader who looks back keeps looking at the same. @param {RunChange} change */
  update(change) {
    const { data, outline, list } = this, names = data.names, chosen = this.index, waits = data.run.idle.length;
    const growth = data.grow(change);
    const moved = growth ? growth.moved : (/** @type {number} */ index) => data.indexOf(names[index], index);
    if (chosen >= 0) this.index = moved(chosen);
    if (outline.grow(growth, moved)) list.grow(growth?.touched ?? new Set());
    else { list.drawAgain(); list.setAxis(list.squeezed); }
    if (change.drawing) this.picture.redraw(change.drawing);
    if (!growth || growth.rewound || change.end) this.picture.rewind();
    this.picture.grow();
    this.talk.grow(growth);
    this.filters.grow();
    this.summary.show(data, this.notes.count);
    if (!waits && data.run.idle.length) this.idle();
    const open = this.following ? data.foremost() ?? data.stepAt(data.head) : this.index;
    const same = open === this.index && this.tab !== "run" && !this.edge && growth !== null && !growth.shifted && !growth.touched.has(open);
    if (this.following) this.seq = data.head;
    this.index = open;
    if (this.following && open >= 0) outline.reveal(open);
    this.drawMoment(!this.following);
    if (!same) this.detail[open === moved(chosen) ? "renew" : "show"]({ tab: this.tab, index: open, edge: this.edge });
    this.offer();
    if (this.sought) this.seek(this.sought);
    if (this.awaited) this.wait(this.awaited);
  }

  /** Waiting can be left out where there is any. */
  idle() { /** @type {HTMLElement} */ (this.at("squeeze").parentElement).hidden = !new TimeAxis(this.data, true).cuts.length; }

  /** The part of the time that is seen has changed. @param {boolean} whole  Whether it is all of it. */
  zoomed(whole) { for (const name of ["longer", "wholly"]) /** @type {HTMLButtonElement} */ (this.at(name)).disabled = whole; }

  /** @param {boolean} following */
  follow(following) {
    this.following = following && this.source.live;
    this.at("follow").setAttribute("aria-pressed", String(this.following));
  }

  /** The buttons for what a reader can do to the run. */
  offer() {
    const offered = this.source.actions.filter((action) => action.offered(this.data.run)), fork = this.source.forks ? "Fork" : "";
    const names = [...offered.map((action) => action.name), fork].join();
    if (names !== this.offered) this.at("actions").replaceChildren(...present([
      ...offered.map((action) => make("button", { type: "button", title: action.title, onclick: (/** @type {Event} */ event) => this.act(action, event) }, action.name)),
      fork && make("button", { type: "button", title: "Begin a new run at the newest step", onclick: () => this.goOn.open(this.data.open() ?? this.data.steps.length - 1) }, fork)]));
    this.offered = names;
    this.at("follow").hidden = !this.source.live;
    this.follow(this.following);
  }

  /** @param {Action} action @param {Event} event */
  async act(action, event) {
    const button = /** @type {HTMLButtonElement} */ (event.currentTarget);
    button.disabled = true;
    await this.tell(action.act);
    button.disabled = false;
  }

  /** Do something that can fail, and show why it did. @param {() => Promise<void>} work */
  async tell(work) {
    const said = this.at("said");
    try { await work(); said.textContent = this.pending; } catch (error) { said.textContent = visible(error instanceof Error ? error.message : error); }
  }

  // -- playing --------------------------------------------------------------------------------------------------

  play() {
    if (this.timer !== null) { this.pause(); return; }
    this.at("play").setAttribute("aria-pressed", "true");
    if (this.seq >= this.data.head) this.go(1);
    // A short run goes record by record; a long one takes about half a minute.
    const stride = Math.max(1, Math.round(this.data.head / STRIDES));
    this.timer = setInterval(() => {
      this.go(this.seq + stride);
      if (this.seq >= this.data.head) this.pause();
    }, MOVE);
  }

  pause() {
    if (this.timer !== null) clearInterval(this.timer);
    this.timer = null;
    this.at("play").setAttribute("aria-pressed", "false");
  }

  // -- the rest -------------------------------------------------------------------------------------------------

  /** The list of steps. */
  get box() { return this.list.box; }

  /** What is looked at. @returns {Visit} */
  get visit() {
    const named = this.index >= 0 && this.data.seqOf(this.index) === this.seq;
    return { step: named ? this.index + 1 : null, seq: this.seq, tab: this.tab, edge: this.edge, view: this.talk.view, choice: this.outline.choice, fork: this.goOn.seq };
  }

  listen() {
    const click = (/** @type {string} */ name, /** @type {(button: HTMLElement) => void} */ act) => this.at(name).addEventListener("click", () => act(this.at(name)));
    click("first", () => this.go(1));
    click("back", () => this.step(-1));
    click("play", () => this.play());
    click("next", () => this.step(1));
    click("last", () => this.go(this.data.head));
    click("follow", () => { this.follow(!this.following); if (this.following) this.go(this.data.head, this.data.foremost()); });
    click("in", () => this.picture.zoom(1.25));
    click("out", () => this.picture.zoom(0.8));
    click("fit", () => this.picture.fit());
    click("real", () => this.picture.zoom(0));
    click("all", () => this.foldAll());
    click("shorter", () => this.list.zoom(2));
    click("longer", () => this.list.zoom(0.5));
    click("wholly", () => this.list.zoom(0));
    click("clear", () => this.filters.clear());
    document.getElementById(this.prefix + "-fold")?.addEventListener("click", () => {
      const button = this.at("fold"), closed = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(closed));
      this.picture.fold(closed);
    });
    this.slider.addEventListener("input", () => { this.pause(); this.go(Number(this.slider.value)); });
    const squeeze = /** @type {HTMLInputElement} */ (this.at("squeeze"));
    squeeze.addEventListener("change", () => this.list.setAxis(squeeze.checked));
  }
}
