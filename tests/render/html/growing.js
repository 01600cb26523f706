// A source like that of a live page: the run that it gives has more records each time `window.grow()` is called.
import { byId } from "./elements.js";
import { openPage } from "./page.js";
import { FrozenSource } from "./source.js";

/** @import { Source } from "./source.js" */
/** @import { RunChange, RunDocument } from "./types.js" */
/** @typedef {{ run: RunDocument, changes: RunChange[] }} Recorded  A run, and what became of it, moment by moment. */

/** @type {Recorded} */
const { run, changes } = JSON.parse(byId("data").textContent ?? "{}");
/** @type {((head: number) => void)[]} */
const callbacks = [];
let now = 0, taken = 0, fails = true;

/** @type {Source} */
const source = {
  live: true,
  forks: null, notes: null, code: null, talk: null,
  actions: [
    { name: "Cancel", offered: (run) => run.status === "running" || run.status === "paused", act: async () => { if (fails) { fails = false; throw new Error("not now"); } Object.assign(window, { cancelled: true }); } },
    { name: "Retry", offered: (run) => run.status === "failed", act: async () => undefined },
  ],
  run: async () => run,
  change: async () => (taken < now ? changes[taken++] : null),
  records: (after) => new FrozenSource(run).records(after),
  subscribe: (callback) => { callbacks.push(callback); return () => { callbacks.length = 0; }; },
};

/** @param {number} by */
function grow(by = 1) {
  for (let left = by; left > 0 && now < changes.length; left--) {
    now++;
    callbacks.forEach((callback) => callback(now));
  }
}

Object.assign(window, { grow, taken: () => taken });
void openPage([source]).then((page) => Object.assign(window, { shown: () => page.views[0].data.run }));
