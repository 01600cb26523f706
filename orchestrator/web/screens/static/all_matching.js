// @ts-check
// All runs that match the filters of the list, also those of other pages: an action for many runs works on these ids,
// and not on runs that begin to match later.

import { call } from "./api.js";

/** @typedef {{id: string, name: string, status: string}} Named */

const MOST = 5000; // runs of one action
const AT_ONCE = 200; // rows of a request, the most that the server gives

/**
 * @param {(found: number) => void} progress  called with how many were found so far
 * @returns {Promise<{runs: Named[], more: boolean}>} `more`: others match, too
 */
export async function allMatching(progress) {
  const query = new URLSearchParams((document.body.dataset.changes ?? "").split("?")[1] ?? "");
  query.delete("after");
  query.set("limit", String(AT_ONCE));
  /** @type {Map<string, Named>} */
  const runs = new Map();
  for (let cursor = null; runs.size < MOST; query.set("after", cursor)) {
    const page = await call(`/runs?${query}`);
    for (const { run_id: id, input, status } of page.runs) runs.set(id, { id, name: typeof input === "string" && input ? input.slice(0, 200) : id, status });
    progress(runs.size);
    cursor = page.cursor;
    if (!cursor) return { runs: [...runs.values()], more: false };
  }
  return { runs: [...runs.values()].slice(0, MOST), more: true };
}
