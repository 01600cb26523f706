// @ts-check
// Who works on the store, and the runs that are parked: it follows the store, and parked runs go on.

import { call, Problem } from "./api.js";
import { byId } from "./elements.js";
import { following, refreshed, takeCount } from "./refresh.js";
import { FollowedRows, move, rowAt } from "./rows.js";
import { addKeys, note } from "./shell.js";
import { tell } from "./times.js";

/** Ages come with the page, so the clock of this machine does not matter. */
function showAges() {
  for (const time of document.querySelectorAll("time[data-age]"))
    if (time instanceof HTMLElement && !time.dataset.at) time.dataset.at = String(Date.now() / 1000 - Number(time.dataset.age));
  tell(document);
}

/** A row that is as it was has another age. @param {HTMLTableRowElement} now @param {HTMLTableRowElement} then */
function takeAge(now, then) {
  const [time, heard] = [now.querySelector("time[data-age]"), then.querySelector("time[data-age]")];
  if (time && heard) time.replaceWith(heard);
}

const rows = new FollowedRows(["working", "parked"], { same: takeAge, taken: showAges });

async function follow() {
  const page = await refreshed();
  if (!page) return;
  takeCount(page);
  byId("summary").textContent = page.getElementById("summary")?.textContent ?? "";
  rows.take(page);
}

/** @param {HTMLButtonElement} button */
async function resume(button) {
  const run = button.dataset.resume ?? "";
  button.disabled = true;
  try {
    await call(`/runs/${encodeURIComponent(run)}/resume`, { method: "POST", body: {} });
    note(`Set going: ${run}`);
  } catch (error) {
    note(`${run}: ${error instanceof Problem ? error.message : "the server does not answer"}`, { bad: true });
    button.disabled = false;
  }
  void follow();
}

document.addEventListener("click", (event) => { if (event.target instanceof HTMLButtonElement && event.target.dataset.resume !== undefined) void resume(event.target); });
addKeys([
  { keys: "j or ArrowDown", does: "next worker or parked run", repeats: true, act: () => move(1) },
  { keys: "k or ArrowUp", does: "previous worker or parked run", repeats: true, act: () => move(-1) },
  { keys: "Enter", does: "open its first run", act: () => { const link = rowAt()?.querySelector("a.run"); if (link instanceof HTMLElement) link.click(); } },
]);
showAges();
following(follow);
document.documentElement.dataset.ready = "yes";
