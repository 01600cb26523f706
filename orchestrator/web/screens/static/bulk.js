// @ts-check
// One action for many runs: a question first, then a line for each run with what came of it. The server checks the right
// to each run by itself, so what is refused for one run does not stop the others.

import { call, Problem } from "./api.js";
import { make } from "./elements.js";

const AT_ONCE = 4; // requests under way at the same time

/** @typedef {{title: (runs: string) => string, about: string, risky?: boolean, done: string, only?: string[], send: (path: string) => Promise<unknown>}} Action */

/** @type {Record<string, Action>} */
const ACTIONS = {
  retry: { title: (runs) => `Retry ${runs}`, about: "Each one that failed, was cancelled, was interrupted or spent a limit goes on where it was, in this server. Others are left as they are.", done: "retried", only: ["failed", "cancelled", "interrupted", "exhausted"], send: (path) => call(`${path}/resume`, { method: "POST", body: { retry: true } }) },
  archive: { title: (runs) => `Archive ${runs}`, about: "The records of those that have ended move to the archive. They stay in this list, and are read as before.", done: "archived", send: (path) => call(`${path}/archive`, { method: "POST", body: {} }) },
  delete: { title: (runs) => `Delete ${runs}`, about: "Their journals, and those of the runs that they called as tools, are gone for good.", risky: true, done: "deleted", send: (path) => call(path, { method: "DELETE" }) },
};

/** What a bulk action is called, for each button that has one. @param {string} what */
export const isBulk = (what) => what in ACTIONS;

/**
 * Ask, and do something with runs.
 * @param {string} what a name of `ACTIONS`
 * @param {{id: string, name: string, status: string}[]} runs
 * @param {{hidden: number}} how  `hidden`: how many of them are not on the page, which a person has to confirm
 * @param {(id: string) => void} done called for each run with which it was done
 * @returns {Promise<void>} when the dialog is closed
 */
export function bulk(what, runs, { hidden }, done) {
  const { title, about, risky, done: outcome, only, send } = /** @type {Action} */ (ACTIONS[what]);
  const named = title(runs.length === 1 ? "1 run" : `${runs.length.toLocaleString("en")} runs`);
  const lines = runs.map((run) => make("li", {}, make("span", { class: "name data", title: run.id }, run.name), make("span", { class: "came" }), make("span", { class: "why data" })));
  const bar = /** @type {HTMLProgressElement} */ (make("progress", { max: runs.length, value: 0, "aria-label": named, hidden: true }));
  const said = make("p", { role: "status", "aria-live": "polite" }, about);
  const go = /** @type {HTMLButtonElement} */ (make("button", { type: "button", class: risky ? "risky" : "first", id: "bulk-go" }, named));
  const meant = hidden ? /** @type {HTMLInputElement} */ (make("input", { type: "checkbox", id: "bulk-meant", onchange: () => { go.disabled = !meant?.checked; } })) : null;
  go.disabled = meant !== null;
  const sure = meant ? make("label", { class: "sure" }, meant, ` Also the ${hidden.toLocaleString("en")} ${hidden === 1 ? "run" : "runs"} that this page does not show`) : "";
  const close = /** @type {HTMLButtonElement} */ (make("button", { type: "button", id: "bulk-close", autofocus: true }, "Keep as they are"));
  const dialog = /** @type {HTMLDialogElement} */ (make("dialog", { id: "bulk-dialog", "aria-label": named }, make("h2", {}, named), said, bar, make("ol", { tabindex: 0, "aria-label": "Runs" }, lines), sure, make("div", { class: "acts" }, close, go)));
  let [next, ended, failed, left, stopped, under] = [0, 0, 0, 0, false, false];

  /** @param {number} at @param {boolean | null} ok  null: nothing was done. @param {string} came @param {string} [why] */
  const tell = (at, ok, came, why = "") => {
    const [, word, reason] = lines[at].children;
    word.textContent = came;
    word.className = `came ${ok === null ? "soft" : ok ? "ok" : "bad"}`;
    reason.textContent = why;
  };
  /** @param {number} at */
  const attempt = async (at) => {
    const { id, status } = runs[at];
    if (only && !only.includes(status)) {
      left += 1;
      tell(at, null, "left as it is", `It is ${status}.`);
      return;
    }
    try {
      await send(`/runs/${encodeURIComponent(id)}`);
      tell(at, true, outcome);
      done(id);
    } catch (error) {
      failed += 1;
      tell(at, false, "not done", error instanceof Problem ? error.message : "The server does not answer: whether it was done is not known.");
    }
  };
  const work = async () => {
    while (next < runs.length && !stopped) {
      const at = next;
      next += 1;
      lines[at].scrollIntoView({ block: "nearest" });
      await attempt(at);
      ended += 1;
      bar.value = ended;
      said.textContent = `${ended} of ${runs.length}`;
    }
  };
  go.addEventListener("click", async () => {
    if (under) return; // a second click
    under = true;
    go.hidden = true;
    if (sure) sure.remove();
    bar.hidden = false;
    close.textContent = "Stop";
    close.focus();
    await Promise.all(Array.from({ length: Math.min(AT_ONCE, runs.length) }, work));
    under = false;
    left += runs.length - ended; // those that "Stop" left
    said.textContent = `${runs.length - left - failed} ${outcome}${failed ? `, ${failed} not` : ""}${left ? `, ${left} left as ${left === 1 ? "it is" : "they are"}` : ""}.`;
    close.textContent = "Close";
  });
  close.addEventListener("click", () => { if (under) stopped = true; else dialog.close(); });
  dialog.addEventListener("cancel", (event) => { if (under) { stopped = true; event.preventDefault(); } });
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((leave) => dialog.addEventListener("close", () => { stopped = true; dialog.remove(); leave(); }));
}
