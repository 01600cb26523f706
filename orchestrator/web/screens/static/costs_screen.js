// @ts-check
// What runs cost: rows and bars that lead to runs.

import { following, refreshed, takeCount } from "./refresh.js";
import { addKeys } from "./shell.js";
import { byId } from "./elements.js";

const rows = () => [...document.querySelectorAll("#groups tbody tr")].filter((row) => row instanceof HTMLTableRowElement);

/** @param {number} by */
function move(by) {
  const all = rows();
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

async function follow() {
  const page = await refreshed();
  if (!page) return;
  takeCount(page);
  const [now, then] = [byId("groups"), page.getElementById("groups")];
  if (then && !now.contains(document.activeElement)) now.replaceChildren(...[...then.childNodes].map((one) => document.adoptNode(one)));
}

addKeys([
  { keys: "j or ArrowDown", does: "next group", repeats: true, act: () => move(1) },
  { keys: "k or ArrowUp", does: "previous group", repeats: true, act: () => move(-1) },
  { keys: "Enter", does: "open its runs", act: () => { const link = document.activeElement?.closest("#groups tbody tr")?.querySelector("a"); if (link instanceof HTMLElement) link.click(); } },
]);
following(follow);
document.documentElement.dataset.ready = "yes";
