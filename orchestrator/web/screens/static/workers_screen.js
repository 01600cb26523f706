// @ts-check
// Who works on the store, and the runs that are parked: it follows the store, and parked runs go on.

import { call, Problem } from "./api.js";
import { byId } from "./elements.js";
import { following, refreshed, takeCount } from "./refresh.js";
import { addKeys, note } from "./shell.js";
import { tell } from "./times.js";

const SECTIONS = ["working", "parked"];
let pointed = false; // whether the pointer is over a list: then no row moves

/** @param {ParentNode} place */
const rowsOf = (place) => [...place.querySelectorAll(".list tbody tr")].filter((row) => row instanceof HTMLTableRowElement);

/** Ages come with the page, so the clock of this machine does not matter. @param {ParentNode} place */
function showAges(place) {
  for (const time of place.querySelectorAll("time[data-age]"))
    if (time instanceof HTMLElement && !time.dataset.at) time.dataset.at = String(Date.now() / 1000 - Number(time.dataset.age));
  tell(place);
}

/** Put the row of a newer page in place of one. What had the focus keeps it. @param {HTMLElement} now @param {HTMLElement} then */
function replace(now, then) {
  const held = now.contains(document.activeElement) ? document.activeElement : null;
  const at = held === null || held === now ? -1 : [...now.querySelectorAll("a, button")].indexOf(held);
  now.replaceWith(then);
  if (!held) return;
  const next = at < 0 ? then : then.querySelectorAll("a, button")[at] ?? then;
  if (next instanceof HTMLElement) next.focus();
}

/** Bring a section up to date. @param {HTMLElement} section @param {HTMLElement} newer */
function update(section, newer) {
  const [body, next] = [section.querySelector("tbody"), newer.querySelector("tbody")];
  const still = pointed || section.contains(document.activeElement); // then nothing moves
  if (!body || !next) {
    if (body && still) for (const row of rowsOf(section)) leave(row);
    else section.replaceChildren(...[...newer.childNodes].map((one) => document.adoptNode(one)));
    return;
  }
  const order = rowsOf(newer).map((then) => {
    const now = document.getElementById(then.id);
    if (!now) return document.adoptNode(then);
    now.classList.remove("gone");
    if (now.dataset.version !== then.dataset.version || now.querySelector(":disabled")) {
      const row = document.adoptNode(then);
      replace(now, row);
      return row;
    }
    const [time, heard] = [now.querySelector("time[data-age]"), then.querySelector("time[data-age]")];
    if (time instanceof HTMLElement && heard) time.replaceWith(document.adoptNode(heard));
    return now;
  });
  if (!still) {
    body.replaceChildren(...order);
    return;
  }
  for (const row of rowsOf(section)) if (!order.includes(row)) leave(row);
  body.append(...order.filter((row) => !row.isConnected));
}

/** Show that a row is in the list no more. @param {HTMLTableRowElement} row */
function leave(row) {
  row.classList.add("gone");
  for (const button of row.querySelectorAll("button")) button.disabled = true;
}

async function follow() {
  const page = await refreshed();
  if (!page) return;
  takeCount(page);
  byId("summary").textContent = page.getElementById("summary")?.textContent ?? "";
  for (const name of SECTIONS) {
    const newer = page.getElementById(name);
    if (newer) update(byId(name), newer);
  }
  showAges(document);
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

/** @param {number} by */
function move(by) {
  const all = rowsOf(document);
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

/** Take away what left the lists, once they have neither pointer nor focus. */
const settle = () => { if (document.querySelector(".list .gone")) void follow(); };
document.addEventListener("pointerover", (event) => {
  const was = pointed;
  pointed = event.target instanceof Element && event.target.closest(".list tbody") !== null;
  if (was && !pointed) settle();
});
document.documentElement.addEventListener("pointerleave", () => { pointed = false; settle(); });
document.addEventListener("focusout", () => setTimeout(settle));
document.addEventListener("click", (event) => { if (event.target instanceof HTMLButtonElement && event.target.dataset.resume !== undefined) void resume(event.target); });
addKeys([
  { keys: "j or ArrowDown", does: "next worker or parked run", repeats: true, act: () => move(1) },
  { keys: "k or ArrowUp", does: "previous worker or parked run", repeats: true, act: () => move(-1) },
  { keys: "Enter", does: "open its first run", act: () => { const link = document.activeElement?.closest(".list tbody tr")?.querySelector("a.run"); if (link instanceof HTMLElement) link.click(); } },
]);
showAges(document);
following(follow);
document.documentElement.dataset.ready = "yes";
