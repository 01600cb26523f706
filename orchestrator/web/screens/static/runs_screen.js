// @ts-check
// The list of runs: it follows the store, runs are chosen by keys, and several are compared, replayed, retried or deleted at once.

import { call, inAddress, Problem, root } from "./api.js";
import { byId, make } from "./elements.js";
import { following, refreshed, takeCount } from "./refresh.js";
import { addKeys, note } from "./shell.js";
import { tell } from "./times.js";

const fresh = byId("fresh");
const bulk = byId("bulk");
const MOST_COMPARED = 6;
const MOST_REPLAYED = 100;
let pointed = false; // whether the pointer is over the rows: then none moves
/** @type {Document | null} */
let held = null; // the newest page, whose new rows wait until they may push others down

const body = () => document.querySelector("#runs tbody");
/** @returns {HTMLTableRowElement[]} */
const rows = () => [...document.querySelectorAll("#runs tbody tr")].filter((row) => row instanceof HTMLTableRowElement);
/** @param {HTMLTableRowElement} row */
const box = (row) => /** @type {HTMLInputElement} */ (row.querySelector("input[type=checkbox]"));
/** @param {Element} row */
const link = (row) => /** @type {HTMLAnchorElement} */ (row.querySelector(".row-link"));
const picked = () => rows().filter((row) => box(row).checked);

/** Bring the rows that are here up to date; where they are stays. @param {Document} page */
function update(page) {
  takeCount(page);
  for (const now of rows()) {
    const then = page.getElementById(now.id);
    now.classList.toggle("gone", !then); // deleted, not what the filters want any more, or pushed to the next page
    if (!(then instanceof HTMLTableRowElement) || then.dataset.version === now.dataset.version) continue;
    const focused = now.contains(document.activeElement) && document.activeElement === link(now);
    const row = document.importNode(then, true);
    box(row).checked = box(now).checked;
    row.className = now.className;
    row.classList.add("changed");
    now.replaceWith(row);
    tell(row);
    if (focused) link(row).focus();
  }
}

/** Rows of a page that are not here. @param {Document} page */
const missing = (page) => [...page.querySelectorAll("#runs tbody tr")].filter((row) => !document.getElementById(row.id));

/** Show the rows of a page, and those alone. What is here of them stays. @param {Document} page */
function arrange(page) {
  const place = body();
  const there = [...page.querySelectorAll("#runs tbody tr")];
  if (!place || !there.length) { // the list was empty, or is now
    location.reload();
    return;
  }
  const links = byId("pages");
  links.replaceChildren(...[...(page.getElementById("pages")?.childNodes ?? [])].map((one) => document.adoptNode(one)));
  place.replaceChildren(...there.map((row) => document.getElementById(row.id) ?? document.importNode(row, true)));
  fresh.hidden = true;
  tell(place);
  shown();
}

/** Show new rows and take away those that left, unless that would move a row away from under the pointer. */
function bring() {
  const page = held;
  if (!page) return;
  const more = missing(page).length;
  if (!more && !rows().some((row) => row.classList.contains("gone"))) {
    fresh.hidden = true;
    return;
  }
  if (!(pointed || picked().length || body()?.contains(document.activeElement) || scrollY > 120)) {
    arrange(page);
    return;
  }
  if (!more || new URLSearchParams(location.search).has("after")) return;
  fresh.hidden = false;
  fresh.textContent = more === 1 ? "1 new run" : `${more} new runs`;
}

async function follow() {
  const page = await refreshed();
  if (!page) return;
  held = page;
  update(page);
  bring();
}

function shown() {
  const chosen = picked();
  bulk.hidden = chosen.length === 0;
  byId("bulk-count").textContent = chosen.length === 1 ? "1 run selected" : `${chosen.length} runs selected`;
  const compare = bulk.querySelector("[data-bulk=compare]");
  if (compare instanceof HTMLButtonElement) compare.disabled = chosen.length < 2 || chosen.length > MOST_COMPARED;
  const replay = bulk.querySelector("[data-bulk=replay]");
  if (replay instanceof HTMLButtonElement) {
    replay.disabled = chosen.length > MOST_REPLAYED;
    replay.title = replay.disabled ? `Up to ${MOST_REPLAYED} runs are replayed at once: select fewer` : "See what another graph would have changed";
  }
  for (const row of rows()) row.classList.toggle("picked", box(row).checked);
}

/** The query of the chosen runs, the oldest first. */
function query() {
  return new URLSearchParams(inAddress(picked().map((row) => row.dataset.run ?? "").reverse()).map((ids) => ["runs", ids]));
}

/** @param {number} by */
function move(by) {
  const all = rows();
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + by))];
  if (next) link(next).focus();
}

/** Do something with every chosen run. @param {string} what */
async function act(what) {
  const chosen = picked();
  if (what === "none") {
    for (const row of chosen) box(row).checked = false;
    shown();
    return;
  }
  if (what === "compare" || what === "replay") return location.assign(`${root}/${what}?${query()}`);
  if (what === "delete" && !(await sure(`Delete ${chosen.length === 1 ? "this run" : `these ${chosen.length} runs`}? Their journals are gone for good.`, "Delete"))) return;
  let done = 0;
  for (const row of chosen) {
    const path = `/runs/${encodeURIComponent(row.dataset.run ?? "")}`;
    try {
      if (what === "delete") await call(path, { method: "DELETE" });
      else await call(`${path}/resume`, { method: "POST", body: { retry: true } });
      done += 1;
      box(row).checked = false;
      if (what === "delete") row.remove();
    } catch (error) {
      note(`${row.dataset.run}: ${error instanceof Problem ? error.message : "the server does not answer"}`, { bad: true });
    }
  }
  if (done) note(what === "delete" ? `Deleted: ${done}` : `Set going: ${done}`);
  shown();
  void follow();
}

/** Ask before what cannot be undone. @param {string} question @param {string} yes @returns {Promise<boolean>} */
function sure(question, yes) {
  return new Promise((answer) => {
    let said = false;
    const dialog = /** @type {HTMLDialogElement} */ (make("dialog", { "aria-label": yes }, make("p", {}, question),
      make("div", { class: "acts" },
        make("button", { type: "button", class: "risky", onclick: () => { said = true; dialog.close(); } }, yes),
        make("button", { type: "button", autofocus: true, onclick: () => dialog.close() }, "Keep"))));
    dialog.addEventListener("close", () => { dialog.remove(); answer(said); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// -- saved views: names for addresses, kept in this browser -------------------------------------------------------

const KEY = "orchestrator.views";
/** @returns {Record<string, string>} */
function views() {
  try {
    const kept = Object.entries(JSON.parse(localStorage.getItem(KEY) ?? "{}") ?? {});
    return Object.fromEntries(kept.filter(([, search]) => typeof search === "string" && search.startsWith("?"))); // others may have written it
  } catch { return {}; }
}

function drawViews() {
  const kept = views();
  const place = byId("views");
  place.replaceChildren(...Object.entries(kept).map(([name, search]) =>
    make("a", { class: "chip", href: `${root}/runs${search}`, "aria-current": search === location.search ? "true" : null }, name)));
  if (!location.search || new URLSearchParams(location.search).has("after")) return;
  const name = Object.keys(kept).find((one) => kept[one] === location.search);
  place.append(name
    ? make("button", { type: "button", class: "quiet", onclick: () => { delete kept[name]; keep(kept); } }, "Forget this view")
    : make("button", { type: "button", class: "quiet", onclick: () => { const given = prompt("Name of this view")?.trim(); if (given) keep({ ...kept, [given]: location.search }); } }, "Save this view"));
}

/** @param {Record<string, string>} kept */
function keep(kept) {
  try { localStorage.setItem(KEY, JSON.stringify(kept)); } catch { note("This browser keeps nothing for this page.", { bad: true }); }
  drawViews();
}

document.addEventListener("change", (event) => { if (event.target instanceof HTMLInputElement && event.target.type === "checkbox") shown(); });
document.addEventListener("pointerover", (event) => { pointed = event.target instanceof Element && event.target.closest("#runs tbody") !== null; });
document.documentElement.addEventListener("pointerleave", () => { pointed = false; bring(); });
fresh.addEventListener("click", () => { if (held) arrange(held); scrollTo(0, 0); });
bulk.addEventListener("click", (event) => { if (event.target instanceof HTMLElement && event.target.dataset.bulk) void act(event.target.dataset.bulk); });
document.addEventListener("click", (event) => {
  if (!(event.target instanceof Element) || event.target.closest("a, button, input") || getSelection()?.toString()) return;
  const row = event.target.closest("#runs tbody tr");
  if (row) link(row).click();
});
addKeys([
  { keys: "j or ArrowDown", does: "next run", repeats: true, act: () => move(1) },
  { keys: "k or ArrowUp", does: "previous run", repeats: true, act: () => move(-1) },
  { keys: "Enter", does: "open the run", act: () => { const row = document.activeElement?.closest("#runs tbody tr"); if (row) link(row).click(); } },
  { keys: "x", does: "select the run", act: () => { const row = document.activeElement?.closest("#runs tbody tr"); if (row instanceof HTMLTableRowElement) { box(row).checked = !box(row).checked; shown(); } } },
  { keys: "/", does: "search", act: () => byId("q").focus() },
]);
drawViews();
shown();
following(follow);
document.documentElement.dataset.ready = "yes";
