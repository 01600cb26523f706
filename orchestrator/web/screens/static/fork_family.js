// @ts-check
// The family of a run that is a fork or has forks, as a small tree: where each was forked, and how it differs.

import { call, root } from "./api.js";
import { make } from "./elements.js";

/** @typedef {{ run_id: string, graph: string, status: string, relation: string, parent: string, seq: number, where: string, differs: string[], deleted: boolean }} Member */

const AGAIN = 10000; // milliseconds between two looks: forks that others make write nothing to this run
const MANY = 6; // runs of a family that are shown without being asked for

export class Family {
  /** @param {string} runId @param {HTMLElement} box */
  constructor(runId, box) {
    this.runId = runId;
    this.box = box;
    this.shown = "";
    /** @type {boolean | null} */
    this.open = null;
    /** Whether the run is deleted. */
    this.over = false;
    document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible") void this.look(); });
    setInterval(() => { if (document.visibilityState === "visible") void this.look(); }, AGAIN);
    void this.look();
  }

  async look() {
    if (this.over) return;
    let found;
    try {
      found = await call(`/runs/${encodeURIComponent(this.runId)}/family`);
    } catch { return; } // it is shown as it was
    const text = JSON.stringify(found);
    if (text === this.shown || this.box.contains(document.activeElement)) return;
    this.shown = text;
    this.draw(found);
  }

  /** @param {{ runs: Member[], more: string[] }} found */
  draw({ runs, more }) {
    this.box.hidden = runs.length < 2;
    if (this.box.hidden) return;
    const own = runs.find((one) => one.run_id === this.runId), forks = runs.filter((one) => one.parent === this.runId).length;
    const brothers = own?.parent ? runs.filter((one) => one.parent === own.parent).length - 1 : 0;
    const said = [own?.parent ? `${own.relation === "replay" ? "Replay" : "Fork"} of ${own.parent}` : "", forks ? `${forks}${more.includes(this.runId) ? "+" : ""} fork${forks === 1 ? "" : "s"}` : "", brothers ? `${brothers} beside it` : ""];
    const root = runs.filter((one) => !runs.some((other) => other.run_id === one.parent));
    const details = /** @type {HTMLDetailsElement} */ (make("details", { ontoggle: () => { this.open = details.open; } },
      make("summary", {}, "Family ", make("span", { class: "soft data" }, said.filter(Boolean).join(", "))), this.tree(root, runs, more)));
    details.open = this.open ?? runs.length <= MANY;
    this.box.replaceChildren(details);
  }

  /** @param {Member[]} some @param {Member[]} all @param {string[]} more @returns {HTMLElement} */
  tree(some, all, more) {
    return make("ul", {}, some.map((one) => {
      const inside = all.filter((other) => other.parent === one.run_id);
      return make("li", {}, this.line(one), inside.length ? this.tree(inside, all, more) : null,
        more.includes(one.run_id) ? make("p", { class: "soft" }, make("a", { href: `${root}/runs?parent=${encodeURIComponent(one.run_id)}` }, "All of its forks")) : null);
    }));
  }

  /** @param {Member} one */
  line(one) {
    const here = one.run_id === this.runId, from = one.parent ? `${one.where || "forked"}${one.seq ? `, record ${one.seq}` : ""}` : "";
    const id = here ? make("b", { class: "id data", "aria-current": "page" }, one.run_id) : one.deleted ? make("span", { class: "id data" }, one.run_id) : make("a", { class: "id data", href: `${root}/runs/${encodeURIComponent(one.run_id)}` }, one.run_id);
    const compare = one.parent ? make("a", { class: "compare-link", href: `${root}/compare?runs=${encodeURIComponent(one.parent)},${encodeURIComponent(one.run_id)}`, "aria-label": `Compare ${one.parent} and ${one.run_id}` }, "Compare") : null;
    return make("div", { class: "member" }, make("span", { class: `pill ${one.deleted ? "" : one.status}` }, one.deleted ? "deleted" : one.status), id,
      one.relation === "replay" ? make("span", { class: "soft" }, "replay") : null, from ? make("span", { class: "soft data" }, from) : null,
      one.differs.length ? make("span", { class: "differs data" }, one.differs.join("; ")) : null, compare);
  }
}
