// @ts-check
// Runs side by side: rows open to the differences of their texts, keys lead from difference to difference, and the page
// follows the runs.

import { root } from "./api.js";
import { byId } from "./elements.js";
import { following, refreshed, takeCount } from "./refresh.js";
import { addKeys, note } from "./shell.js";

const PARTS = ["summary", "figures", "jump", "pages"]; // besides the rows
let turn = 0; // of the row that was asked for last

const body = () => document.querySelector("#aligned tbody");
/** @param {ParentNode} [place] @returns {HTMLElement[]} */
const rows = (place = document) => /** @type {HTMLElement[]} */ ([...place.querySelectorAll("#aligned tr.row")]);
/** @param {Element} row */
const link = (row) => /** @type {HTMLAnchorElement} */ (row.querySelector("a.open"));
/** @param {Element} row */
const below = (row) => (row.nextElementSibling?.classList.contains("texts") ? row.nextElementSibling : null);
/** @param {string | undefined} key */
const rowOf = (key) => rows().find((row) => row.dataset.step === key);
/** The row that has the focus, or is open. */
const current = () => document.activeElement?.closest("#aligned tr.row") ?? document.querySelector("#aligned tr.texts")?.previousElementSibling ?? null;

/** Remember in the address which row is open. @param {string | null} key */
function address(key) {
  const place = new URL(location.href);
  if (key === null) place.searchParams.delete("step");
  else place.searchParams.set("step", key);
  place.hash = "";
  history.replaceState(null, "", place);
}

function close() {
  turn++;
  for (const open of document.querySelectorAll("#aligned tr.texts")) {
    open.previousElementSibling?.querySelector("a.open")?.setAttribute("aria-expanded", "false");
    open.remove();
  }
}

/** Show the texts of a row below it. @param {HTMLElement} row */
async function open(row) {
  close();
  const mine = turn, key = row.dataset.step ?? "";
  address(key);
  link(row).setAttribute("aria-expanded", "true");
  link(row).focus({ preventScroll: true });
  row.scrollIntoView({ block: "nearest" });
  const asked = new URLSearchParams(location.search), query = new URLSearchParams({ step: key });
  for (const name of asked.getAll("runs")) query.append("runs", name);
  try {
    const answer = await fetch(`${root}/compare/step?${query}`, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const texts = page.getElementById("texts");
    if (mine !== turn || !row.isConnected) return;
    if (!texts) throw new Error(page.querySelector("main p")?.textContent ?? `The server answered ${answer.status}.`);
    const cell = document.createElement("td");
    cell.colSpan = row.children.length;
    cell.append(document.adoptNode(texts));
    const made = document.createElement("tr");
    made.id = row.id.replace("row-", "texts-");
    made.className = "texts";
    made.dataset.step = key;
    made.dataset.version = row.dataset.version;
    made.append(cell);
    row.after(made);
    made.scrollIntoView({ block: "nearest" });
    row.scrollIntoView({ block: "nearest" });
  } catch (error) {
    if (mine === turn) note(error instanceof Error && error.message !== "Failed to fetch" ? error.message : "the server does not answer", { bad: true });
  }
}

/** @param {HTMLElement} row */
function toggle(row) {
  if (!below(row)) return void open(row);
  close();
  address(null);
  link(row).focus();
}

/** Go to another row. @param {number} by @param {boolean} [differing] to one that differs; then its texts are shown */
function move(by, differing = false) {
  const all = rows(), from = current();
  const at = from instanceof HTMLElement ? all.indexOf(from) : -1;
  if (!differing) {
    const next = all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + by))];
    if (next) link(next).focus();
    return;
  }
  const left = by > 0 ? all.slice(at + 1) : all.slice(0, Math.max(0, at)).reverse();
  const next = left.find((row) => row.classList.contains("differs"));
  if (next) return void open(next);
  const more = document.getElementById(by > 0 ? "later" : "earlier");
  if (more) note(by > 0 ? "No further difference on this page: later rows follow." : "No difference before it on this page: earlier rows are there.");
  else note(by > 0 ? "That is the last difference." : "That is the first difference.");
  if (more) more.focus();
}

/** Go to the first difference, also on another page. */
function first() {
  const there = document.getElementById("first");
  if (!(there instanceof HTMLAnchorElement)) return note("Nothing differs.");
  const row = rowOf(there.dataset.step);
  if (row) void open(row);
  else location.assign(there.href);
}

/** Take over the rows of a newer page; what is as it was stays, with the focus. @param {Document} page */
function update(page) {
  const [now, then] = [body(), page.querySelector("#aligned tbody")];
  if (!now || !then || document.querySelector("#aligned thead")?.outerHTML !== page.querySelector("#aligned thead")?.outerHTML) {
    location.reload();
    return;
  }
  const held = document.activeElement, row = held?.closest("#aligned tr");
  const order = [...then.children].map((made) => {
    const kept = document.getElementById(made.id);
    return kept && kept.getAttribute("data-version") === made.getAttribute("data-version") ? kept : document.adoptNode(made);
  });
  if (order.length === now.children.length && order.every((one, at) => one === now.children[at])) return;
  now.replaceChildren(...order);
  if (!held || !row || held.isConnected && document.activeElement === held) return;
  const again = held.isConnected ? held : document.getElementById(row.id)?.querySelector("a.open");
  if (again instanceof HTMLElement) again.focus({ preventScroll: true });
}

async function follow() {
  const page = await refreshed();
  if (!page) return;
  takeCount(page);
  for (const name of PARTS) {
    const [now, then] = [byId(name), page.getElementById(name)];
    if (then && now.innerHTML !== then.innerHTML) now.replaceChildren(...[...then.childNodes].map((one) => document.adoptNode(one)));
  }
  update(page);
}

document.addEventListener("click", (event) => {
  if (!(event.target instanceof Element) || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  const at = event.target.closest("a");
  if (at?.id === "first" && rowOf(at.dataset.step)) {
    event.preventDefault();
    first();
    return;
  }
  const row = event.target.closest("#aligned tr.row");
  if (!(row instanceof HTMLElement) || (at && !at.classList.contains("open")) || getSelection()?.toString()) return;
  event.preventDefault();
  toggle(row);
});
addKeys([
  { keys: "f", does: "first difference", act: first },
  { keys: "n", does: "next difference", repeats: true, act: () => move(1, true) },
  { keys: "p", does: "previous difference", repeats: true, act: () => move(-1, true) },
  { keys: "j or ArrowDown", does: "next row", repeats: true, act: () => move(1) },
  { keys: "k or ArrowUp", does: "previous row", repeats: true, act: () => move(-1) },
  { keys: "Enter", does: "show or hide the texts of the row; follow a link", act: () => { if (document.activeElement instanceof HTMLElement && document.activeElement.matches("a")) document.activeElement.click(); } },
  { keys: "Escape", does: "hide the texts", act: () => { const row = current(); close(); address(null); if (row) link(row).focus(); } },
]);
const given = new URLSearchParams(location.search).get("step");
const row = given === null ? undefined : rowOf(given);
if (row) {
  link(row).focus({ preventScroll: true });
  below(row)?.scrollIntoView({ block: "nearest" });
  row.scrollIntoView({ block: "nearest" });
}
following(follow);
document.documentElement.dataset.ready = "yes";
