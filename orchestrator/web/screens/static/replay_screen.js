// @ts-check
// Replays of many runs: a form begins them, a table follows them.

import { call, inAddress, Problem, root } from "./api.js";
import { byId } from "./elements.js";
import { following, refreshed, takeCount } from "./refresh.js";
import { addKeys, note } from "./shell.js";

/** @type {{runs: string[], graph?: string, at?: number, live: string}} */
const given = JSON.parse(byId("given").textContent ?? "{}");
const rows = () => /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".list tbody tr")]);

/** The address of a batch. @param {typeof given} order @param {string} batch */
function address({ runs, graph, at, live }, batch) {
  const query = new URLSearchParams();
  for (const ids of inAddress(runs)) query.append("runs", ids);
  if (graph) query.append("graph", graph);
  if (at !== undefined) query.append("at", String(at));
  query.append("live", live);
  query.append("batch", batch);
  return `${root}/replay?${query}`;
}

/** @param {unknown} error */
const why = (error) => (error instanceof Problem ? error.message : "the server does not answer");

/** @param {HTMLFormElement} form @param {HTMLButtonElement} button */
async function begin(form, button) {
  const field = (/** @type {string} */ name) => /** @type {HTMLInputElement | HTMLSelectElement} */ (form.elements.namedItem(name));
  const from = field("from").value, record = Number(field("at").value);
  if (from === "at" && !(Number.isInteger(record) && record > 0)) return note("Say after which record: a number from 1 on.", { bad: true });
  const live = String(new FormData(form).get("live") ?? "never");
  const order = { runs: given.runs, live, ...(field("graph").value ? { graph: field("graph").value } : {}), ...(from ? { at: from === "at" ? record : 0 } : {}) };
  button.disabled = true;
  try {
    const made = await call("/replays", { method: "POST", body: order });
    location.assign(address(order, made.batch));
  } catch (error) {
    note(why(error), { bad: true });
    button.disabled = false;
  }
}

/** Stop the batch, or go on with what is left of it. @param {HTMLButtonElement} button */
async function act(button) {
  const batch = byId("progress").querySelector("[data-batch]")?.getAttribute("data-batch") ?? "";
  button.disabled = true;
  try {
    if (button.id === "stop") await call("/replays/stop", { method: "POST", body: { batch } });
    else await call("/replays", { method: "POST", body: { ...given, batch } });
  } catch (error) {
    note(why(error), { bad: true });
    button.disabled = false;
  }
  void follow();
}

async function follow() {
  const page = await refreshed();
  if (!page) return;
  takeCount(page);
  for (const name of ["summary", "progress"]) {
    const [now, then] = [byId(name), page.getElementById(name)];
    if (!then || now.innerHTML === then.innerHTML) continue;
    const held = now.contains(document.activeElement) ? document.activeElement?.id : null;
    now.replaceChildren(...[...then.childNodes].map((one) => document.adoptNode(one)));
    if (held) (document.getElementById(held) ?? now.querySelector("button, a"))?.focus();
  }
  for (const now of rows()) {
    const then = page.getElementById(now.id);
    if (!then || then.dataset.version === now.dataset.version) continue;
    const at = now.contains(document.activeElement) ? [now, ...now.querySelectorAll("a")].indexOf(/** @type {HTMLElement} */ (document.activeElement)) : -1;
    const row = document.adoptNode(then);
    now.replaceWith(row);
    const next = at < 0 ? null : [row, ...row.querySelectorAll("a")][at] ?? row;
    if (next instanceof HTMLElement) next.focus();
  }
}

/** @param {number} by */
function move(by) {
  const all = rows(), at = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + by))];
  const link = next?.querySelector("a.run");
  if (link instanceof HTMLElement) link.focus();
}

/** @param {string} selector */
function open(selector) {
  const link = document.activeElement?.closest(".list tbody tr")?.querySelector(selector);
  if (link instanceof HTMLElement) link.click();
}

const form = document.getElementById("manner");
if (form instanceof HTMLFormElement) {
  const button = /** @type {HTMLButtonElement} */ (form.querySelector("[type=submit]"));
  form.addEventListener("submit", (event) => { event.preventDefault(); void begin(form, button); });
  const show = () => { byId("at").hidden = /** @type {HTMLSelectElement} */ (byId("from")).value !== "at"; };
  byId("from").addEventListener("change", show);
  show();
  button.disabled = false;
}
document.addEventListener("click", (event) => { if (event.target instanceof HTMLButtonElement && (event.target.id === "stop" || event.target.id === "go-on")) void act(event.target); });
addKeys([
  { keys: "j or ArrowDown", does: "next run", repeats: true, act: () => move(1) },
  { keys: "k or ArrowUp", does: "previous run", repeats: true, act: () => move(-1) },
  { keys: "Enter", does: "open the run; follow a link", act: () => { if (document.activeElement instanceof HTMLElement && document.activeElement.matches("a")) document.activeElement.click(); } },
  { keys: "c", does: "compare the run with its replay", act: () => open("a.compare") },
]);
if (document.body.dataset.changes) following(follow);
document.documentElement.dataset.ready = "yes";
