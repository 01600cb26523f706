// @ts-check
// What every screen has: keys, their list, notes, the state of the connection, times that go on.

import { call, root } from "./api.js";
import { byId, make } from "./elements.js";
import { offer } from "./finder.js";
import { tell } from "./times.js";

/**
 * A key, or two after each other ("g r"). One that is held acts again only if it `repeats`.
 * @typedef {{keys: string, does: string, repeats?: boolean, act?: (event: KeyboardEvent) => void}} Key
 */

/** @type {Key[]} */
const keys = [
  { keys: "g r", does: "go to the runs", act: () => location.assign(`${root}/runs`) },
  { keys: "g i", does: "go to the inbox", act: () => location.assign(`${root}/inbox`) },
  { keys: "g w", does: "go to the workers", act: () => location.assign(`${root}/workers`) },
  { keys: "g g", does: "go to the graphs", act: () => location.assign(`${root}/graphs`) },
  { keys: "g e", does: "go to the editor of graphs", act: () => location.assign(`${root}/compose`) },
  { keys: "g c", does: "go to the costs", act: () => location.assign(`${root}/costs`) },
  { keys: "Ctrl+K", does: "find a run, a screen or an action" },
  { keys: "?", does: "show the keys", act: () => showKeys() },
];
let before = "";
let beforeAt = 0;

/** Add the keys of a screen. @param {Key[]} more */
export function addKeys(more) {
  keys.push(...more);
}

/** Whether keys pressed here are text. @param {EventTarget | null} target */
const isText = (target) =>
  target instanceof HTMLElement && target.matches("input:not([type=checkbox]), textarea, select, [contenteditable]");

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (isText(event.target)) {
    if (event.key === "Escape" && event.target instanceof HTMLElement) event.target.blur();
    return;
  }
  if (event.target instanceof HTMLElement && event.target.matches("button, summary, input") && [" ", "Enter"].includes(event.key)) return;
  const both = event.timeStamp - beforeAt < 1200 ? `${before} ${event.key}` : "";
  const found = keys.find((one) => one.keys === both) ?? keys.find((one) => one.keys.split(" or ").includes(event.key));
  [before, beforeAt] = [event.key, event.timeStamp];
  if (!found?.act) return;
  event.preventDefault();
  before = "";
  if (!event.repeat || found.repeats) found.act(event);
});

/** @param {string} text */
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function showKeys() {
  const rows = keys.flatMap((one) => [
    make("dt", {}, ...one.keys.split(" ").flatMap((key, at) => [at ? " " : "", key === "or" ? "or" : make("kbd", {}, key)])),
    make("dd", {}, one.does),
  ]);
  const dialog = /** @type {HTMLDialogElement} */ (
    make("dialog", { "aria-label": "Keys" }, make("h2", {}, "Keys"), make("dl", {}, ...rows),
      make("button", { type: "button", onclick: () => dialog.close() }, "Close"))
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** Show a text for some seconds. @param {string} text @param {{bad?: boolean}} [how] */
export function note(text, { bad = false } = {}) {
  const shown = make("p", { class: bad ? "note bad data" : "note data" }, text);
  byId("notes").append(shown);
  setTimeout(() => shown.remove(), bad ? 9000 : 4500);
}

/** Say whether the server answers. @param {boolean} there */
export function connected(there) {
  const text = there ? "" : "Connection lost: the server does not answer. Trying again …";
  const link = byId("link");
  if (link.textContent !== text) link.textContent = text;
}

byId("keys-open").addEventListener("click", showKeys);
document.getElementById("log-out")?.addEventListener("click", async () => {
  await call("/logout", { method: "POST", base: root.replace(/\/try$/, "") });
  location.reload();
});
offer(() => keys.flatMap(({ keys: name, does, act }) => (act && !name.startsWith("g ") ? [{ name: capital(does), about: name, act: () => act(new KeyboardEvent("keydown")) }] : [])));
tell(document);
setInterval(() => tell(document), 1000);
