// @ts-check
// The graphs of the server, as a list.

import { addKeys } from "./shell.js";

const rows = () => [...document.querySelectorAll("#graphs tbody tr")].filter((row) => row instanceof HTMLTableRowElement);

/** @param {number} by */
function move(by) {
  const all = rows();
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

addKeys([
  { keys: "j or ArrowDown", does: "next graph", repeats: true, act: () => move(1) },
  { keys: "k or ArrowUp", does: "previous graph", repeats: true, act: () => move(-1) },
  { keys: "Enter", does: "open its runs", act: () => { const link = document.activeElement?.closest("#graphs tbody tr")?.querySelector("a"); if (link instanceof HTMLElement) link.click(); } },
]);
document.documentElement.dataset.ready = "yes";
