// @ts-check
// The list of runs: it follows the store, runs are chosen by keys, and several are compared, replayed, retried, archived or deleted at once.

import { inAddress, Problem, root } from "./api.js";
import { byId, make } from "./elements.js";
import { following, refreshed, takeCount } from "./refresh.js";
import { addKeys, note } from "./shell.js";
import { tell } from "./times.js";

const fresh = byId("fresh");
const bulk = byId("bulk");
const MOST_COMPARED = 6;
const MOST_REPLAYED = 100;
/** @type {{runs: import("./all_matching.js").Named[], more: boolean} | null} */
let matching = null; // all that match, if they were selected; null: rows of the page
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

/** What is selected, in words. @param {number} many */
function selected(many) {
  const named = `${many.toLocaleString("en")} ${many === 1 ? "run" : "runs"} selected`;
  if (matching) return `${named}: ${matching.more ? "the first ones that match" : "all that match"}`;
  return many > 0 && many === rows().length && document.getElementById("older") ? `${named}, all of this page` : named;
}

function shown() {
  const here = picked(), chosen = matching?.runs ?? here;
  bulk.hidden = chosen.length === 0;
  byId("bulk-count").textContent = selected(chosen.length);
  /** @type {HTMLElement | null} */
  const all = bulk.querySelector("[data-bulk=all]");
  if (all) all.hidden = matching !== null || here.length < rows().length || !(document.getElementById("older") || new URLSearchParams(location.search).has("after"));
  const compare = bulk.querySelector("[data-bulk=compare]");
  if (compare instanceof HTMLButtonElement) compare.disabled = chosen.length < 2 || chosen.length > MOST_COMPARED;
  const replay = bulk.querySelector("[data-bulk=replay]");
  if (replay instanceof HTMLButtonElement) {
    replay.disabled = chosen.length > MOST_REPLAYED;
    replay.title = replay.disabled ? `Up to ${MOST_REPLAYED} runs are replayed at once: select fewer` : "See what another graph would have changed";
  }
  for (const row of rows()) row.classList.toggle("picked", box(row).checked);
  const head = document.getElementById("pick-all");
  if (head instanceof HTMLInputElement) {
    head.checked = here.length > 0 && here.length === rows().length;
    head.indeterminate = here.length > 0 && !head.checked;
  }
}

/** Select all runs that match the filters, of all pages. */
async function selectAll() {
  const button = /** @type {HTMLButtonElement} */ (bulk.querySelector("[data-bulk=all]"));
  button.disabled = true;
  try {
    const { allMatching } = await import("./all_matching.js");
    const found = await allMatching((many) => { byId("bulk-count").textContent = `${many.toLocaleString("en")} runs found …`; });
    if (picked().length === rows().length) matching = found; // else another choice was made meanwhile
  } catch (error) {
    note(error instanceof Problem ? error.message : "The server does not answer; the runs of this page are selected.", { bad: true });
  }
  button.disabled = false;
  shown();
}

/** @type {HTMLTableRowElement | null} */
let last = null; // the row that was chosen last: with Shift, all rows from there on are

/** @param {MouseEvent} event */
function pick(event) {
  if (!(event.target instanceof HTMLInputElement) || event.target.type !== "checkbox" || !event.target.closest("#runs")) return;
  matching = null;
  if (event.target.id === "pick-all") for (const row of rows()) box(row).checked = event.target.checked;
  const row = event.target.closest("#runs tbody tr");
  if (row instanceof HTMLTableRowElement) {
    const [from, to] = [last ? rows().indexOf(last) : -1, rows().indexOf(row)];
    if (event.shiftKey && from >= 0) for (const one of rows().slice(Math.min(from, to), Math.max(from, to))) box(one).checked = event.target.checked;
    last = row;
  }
  shown();
}

/** The query of the chosen runs, the oldest first. */
function query() {
  return new URLSearchParams(inAddress((matching?.runs.map(({ id }) => id) ?? picked().map((row) => row.dataset.run ?? "")).reverse()).map((ids) => ["runs", ids]));
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
  if (what === "all") return selectAll();
  if (what === "none") {
    matching = null;
    for (const row of chosen) box(row).checked = false;
    shown();
    return;
  }
  if (what === "compare" || what === "replay") return location.assign(`${root}/${what}?${query()}`);
  const { bulk: ask, isBulk } = await import("./bulk.js");
  if (!isBulk(what)) return;
  const named = matching?.runs ?? chosen.map((row) => ({ id: row.dataset.run ?? "", name: link(row).textContent?.trim() || (row.dataset.run ?? ""), status: row.dataset.status ?? "" }));
  await ask(what, named, { hidden: matching ? named.length - chosen.length : 0 }, (id) => {
    const row = rows().find((one) => one.dataset.run === id);
    if (!row) return;
    box(row).checked = false;
    if (what === "delete") row.remove();
  });
  matching = null;
  shown();
  void follow();
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
    : make("button", { type: "button", class: "quiet", id: "save-view", onclick: nameView }, "Save this view"));
}

/** Ask for the name of a view where its button was. */
function nameView() {
  const given = /** @type {HTMLInputElement} */ (make("input", { type: "text", maxlength: 60, placeholder: "Name of this view", "aria-label": "Name of this view", autocomplete: "off" }));
  const form = make("form", { class: "viewed" }, given, make("button", { type: "submit" }, "Save"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (given.value.trim()) keep({ ...views(), [given.value.trim()]: location.search });
    else drawViews();
  });
  form.addEventListener("keydown", (event) => { if (event.key === "Escape") drawViews(); });
  byId("save-view").replaceWith(form);
  given.focus();
}

/** @param {Record<string, string>} kept */
function keep(kept) {
  try { localStorage.setItem(KEY, JSON.stringify(kept)); } catch { note("This browser keeps nothing for this page.", { bad: true }); }
  drawViews();
}

document.addEventListener("click", pick);
const filters = /** @type {HTMLFormElement} */ (byId("filters"));
filters.addEventListener("change", (event) => { if (event.target instanceof HTMLSelectElement || (event.target instanceof HTMLInputElement && event.target.type === "date")) filters.requestSubmit(); });
byId("more").addEventListener("click", () => byId("more").setAttribute("aria-expanded", String(filters.classList.toggle("open"))));
filters.addEventListener("formdata", (event) => { for (const [name, value] of [...event.formData.entries()]) if (value === "" && event.formData.getAll(name).length === 1) event.formData.delete(name); }); // a short address
document.addEventListener("pointerover", (event) => { pointed = event.target instanceof Element && event.target.closest("#runs tbody") !== null; });
document.documentElement.addEventListener("pointerleave", () => { pointed = false; bring(); });
fresh.addEventListener("click", () => { if (held) arrange(held); scrollTo(0, 0); });
bulk.addEventListener("click", (event) => { if (event.target instanceof HTMLElement && event.target.dataset.bulk) void act(event.target.dataset.bulk); });
document.addEventListener("click", (event) => {
  if (!(event.target instanceof Element) || event.target.closest("a, button, input, .pick") || getSelection()?.toString()) return;
  const row = event.target.closest("#runs tbody tr");
  if (row) link(row).click();
});
addKeys([
  { keys: "j or ArrowDown", does: "next run", repeats: true, act: () => move(1) },
  { keys: "k or ArrowUp", does: "previous run", repeats: true, act: () => move(-1) },
  { keys: "Enter", does: "open the run", act: () => { const row = document.activeElement?.closest("#runs tbody tr"); if (row) link(row).click(); } },
  { keys: "x", does: "select the run", act: () => { const row = document.activeElement?.closest("#runs tbody tr"); if (row instanceof HTMLTableRowElement) { matching = null; box(row).checked = !box(row).checked; shown(); } } },
  { keys: "/", does: "search", act: () => byId("q").focus() },
]);
drawViews();
shown();
following(follow);
document.documentElement.dataset.ready = "yes";
