// Going on from a step in a new run: a dialog that says from which record, with a form where the page can make a fork, and
// with the command that makes it where it cannot.
import { make } from "./elements.js";
import { visible } from "./texts.js";

/** @import { RunData } from "./run_data.js" */
/** @import { Source } from "./source.js" */
/** @import { Call } from "./types.js" */

/**
 * A record at which a run can be forked.
 * @typedef {object} Point
 * @property {number} seq
 * @property {string} name
 * @property {"" | "result" | "answer" | "request"} change  What of it can be replaced, beside the state.
 */

const WAITS = ["timer", "event"];
const OPEN = "as it is now";

/**
 * The records of a step at which its run can be forked, in order.
 * @param {RunData} data
 * @param {number} index
 * @returns {Point[]}
 */
export function pointsOf(data, index) {
  const step = data.steps[index], { run } = data, what = step ? visible(step.name[0]) : "";
  /** @type {Point[]} */
  const found = [];
  const add = (/** @type {number | undefined} */ seq, /** @type {string} */ name, /** @type {Point["change"]} */ change = "") => {
    if (seq !== undefined && seq >= 1 && !found.some((one) => one.seq === seq)) found.push({ seq, name, change });
  };
  if (!step) return [{ seq: Math.max(1, data.head - (run.status === "completed" ? 1 : 0)), name: "the newest record", change: "" }];
  add(step.began, "before " + what + " ran");
  for (const call of step.calls ?? []) if (call.kind === "model" && !call.inside) add(call.seq, "another request to the model", "request");
  for (const call of step.calls ?? []) if (call.settled) add(call.settled, "another result of " + named(call), "result");
  for (const asked of step.asked ?? []) if (asked.answered && !WAITS.includes(asked.kind)) add(asked.answered, "another answer", "answer");
  const over = run.status === "completed" && step.seq === (run.of ?? data.head) - 1; // nothing runs behind it
  if (step.seq === undefined) add(data.head, OPEN);
  else if (step.status === "failed") add(step.seq, "another attempt of " + what);
  else if (!over) add(step.seq, "after " + what);
  return found.sort((one, other) => one.seq - other.seq);
}

/** The record that is meant if no other one is named: the end of the step, else its beginning. @param {Point[]} points */
function usual(points) { return points.find((one) => /^(after|as it|another attempt|the newest)/.test(one.name)) ?? points[0]; }

/** @param {Call} call */
function named(call) { return call.kind === "model" ? "the model" : visible(call.name); }

/**
 * The command that makes a fork.
 * @param {string} run
 * @param {Point} point
 */
export function commandOf(run, point) { return "orchestrator fork " + quoted(run) + " --at " + point.seq; }

/** A word for a shell. @param {string} text */
function quoted(text) { return /^[\w.:+,=-]+$/.test(text) && !text.startsWith("-") ? text : "'" + text.replaceAll("'", "'\\''") + "'"; }

/** What may stand behind the command. @type {Record<Point["change"], [string, string][]>} */
const OPTIONS = {
  "": [["--set 'FIELD=JSON'", "another value of a field"]],
  result: [["--result JSON", "another result of this call"], ["--set 'FIELD=JSON'", "another value of a field"]],
  request: [["--request FILE", "another request: JSON with messages and options"], ["--no-pause", "go on behind this step"]],
  answer: [["--answer JSON", "another answer: approve, deny, or JSON"], ["--set 'FIELD=JSON'", "another value of a field"]],
};

export class GoOn {
  /**
   * @param {RunData} data
   * @param {Source} source
   * @param {() => void} moved  It was opened or closed, or stands at another record.
   */
  constructor(data, source, moved) {
    this.data = data;
    this.source = source;
    this.moved = moved;
    /** The record at which it stands; null: it is closed. @type {number | null} */
    this.seq = null;
    /** @type {Point[]} */
    this.points = [];
    this.select = /** @type {HTMLSelectElement} */ (make("select", { autofocus: true, onchange: () => this.stand(Number(this.select.value)) }));
    this.fault = make("span", { class: "fault", role: "alert" });
    this.told = make("p", { class: "note" });
    this.body = make("div", { class: "body" });
    const close = make("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => this.dialog.close() }, "×");
    this.dialog = /** @type {HTMLDialogElement} */ (make("dialog", { class: "go-on", "aria-label": "Go on from here" },
      make("header", {}, make("h2", {}, "Go on from here"), close), this.told,
      make("label", { class: "from" }, make("span", {}, "From"), this.select), this.fault, this.body));
    this.dialog.addEventListener("close", () => {
      this.dialog.remove();
      if (this.seq !== null) { this.seq = null; this.moved(); }
    });
  }

  /**
   * Open it at a step.
   * @param {number} index
   * @param {number | null} seq  The record; null: the usual one of the step.
   */
  open(index, seq = null) {
    this.points = pointsOf(this.data, index);
    const at = seq ?? usual(this.points).seq;
    if (!this.points.some((one) => one.seq === at)) this.points.push({ seq: at, name: "another record", change: "" });
    this.select.replaceChildren(...this.points.map((one) => make("option", { value: one.seq }, one.name + " (record " + one.seq + ")")));
    this.stand(at);
    if (this.dialog.open) return;
    document.body.append(this.dialog);
    this.dialog.showModal();
  }

  /** What an address says. @param {number} index @param {number | null} seq */
  arrive(index, seq) {
    const here = pointsOf(this.data, index).some((one) => one.seq === seq);
    if (seq !== null && seq <= (this.data.run.of ?? this.data.head)) this.open(here ? index : this.data.stepAt(seq), seq);
    else if (this.dialog.open) this.dialog.close();
  }

  /** Stand at another record. @param {number} seq */
  stand(seq) {
    const { run } = this.data, point = this.points.find((one) => one.seq === seq) ?? this.points[0];
    this.seq = point.seq;
    this.select.value = String(point.seq);
    this.fault.textContent = "";
    this.told.replaceChildren("A new run that begins with records 1 to " + point.seq + " of ", make("span", { class: "data id" }, visible(run.run)), ". That run stays as it is." + this.hint(point));
    const { forks } = this.source;
    this.body.replaceChildren(forks ? forks.form(point, { close: () => this.dialog.close(), fault: (text) => { this.fault.textContent = visible(text); } }) : this.command(point));
    this.moved();
  }

  /** What people may not expect of a fork at a record. @param {Point} point */
  hint(point) {
    if (point.name.startsWith("after ") && this.points.some((one) => one.name.startsWith("before ")))
      return " The step does not run again: choose the record before it to run it with other values.";
    return point.name === OPEN && this.data.run.waiting.length ? " Its open question is asked in the new run, and answered there." : "";
  }

  /** @param {Point} point */
  command(point) {
    const text = commandOf(this.data.run.run, point), shown = make("pre", { class: "data", tabindex: 0 }, visible(text));
    const copied = make("span", { class: "note", role: "status" });
    const copy = async () => {
      try {
        await navigator.clipboard.writeText(text);
        copied.textContent = "Copied.";
      } catch { // the page may not: then it is marked, ready to be copied
        getSelection()?.selectAllChildren(shown);
        copied.textContent = "Marked: copy it with Ctrl C.";
      }
    };
    return make("div", { class: "command" }, make("p", {}, "This page only reads. Where the run is stored, this command makes the fork and runs it:"), shown,
      make("p", { class: "acts" }, make("button", { type: "button", onclick: copy }, "Copy"), " ", copied),
      make("dl", {}, OPTIONS[point.change].map(([option, does]) => [make("dt", {}, make("code", {}, option)), make("dd", {}, does)])));
  }
}
