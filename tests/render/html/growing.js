// A source like that of a live page: the run that it gives has more records each time `window.grow()` is called.
import { byId } from "./elements.js";
import { openPage } from "./page.js";
import { FrozenSource } from "./source.js";

/** @import { Source } from "./source.js" */
/** @import { RunDocument } from "./types.js" */

/** @type {RunDocument[]} */
const runs = JSON.parse(byId("data").textContent ?? "[]");
/** @type {((head: number) => void)[]} */
const callbacks = [];
let now = 0, fails = true;

/** @type {Source} */
const source = {
  live: true,
  actions: [
    { name: "Cancel", offered: (run) => run.status === "running" || run.status === "paused", act: async () => { if (fails) { fails = false; throw new Error("not now"); } Object.assign(window, { cancelled: true }); } },
    { name: "Retry", offered: (run) => run.status === "failed", act: async () => undefined },
  ],
  run: async () => runs[now],
  records: (after) => new FrozenSource(runs[now]).records(after),
  subscribe: (callback) => { callbacks.push(callback); return () => { callbacks.length = 0; }; },
};

/** @param {number} by */
function grow(by = 1) {
  now = Math.min(runs.length - 1, now + by);
  callbacks.forEach((callback) => callback(runs[now].head));
}

Object.assign(window, { grow });
void openPage([source]);
