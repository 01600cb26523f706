// @ts-check
// What runs cost: groups with bars that lead to their runs. It follows the store.

import { byId } from "./elements.js";
import { following, refreshed, takeCount } from "./refresh.js";
import { FollowedRows, move, rowAt } from "./rows.js";
import { addKeys } from "./shell.js";

const rows = new FollowedRows(["groups", "chart"], { still: ".list tbody, .days" });

async function follow() {
  const page = await refreshed();
  if (!page) return;
  takeCount(page);
  for (const name of ["summary", "about"]) {
    const newer = page.getElementById(name);
    if (newer) byId(name).replaceChildren(...[...newer.childNodes].map((one) => document.importNode(one, true)));
  }
  rows.take(page);
}

addKeys([
  { keys: "j or ArrowDown", does: "next group", repeats: true, act: () => move(1) },
  { keys: "k or ArrowUp", does: "previous group", repeats: true, act: () => move(-1) },
  { keys: "Enter", does: "open its runs", act: () => { const link = rowAt()?.querySelector("a"); if (link instanceof HTMLElement) link.click(); } },
]);
following(follow);
document.documentElement.dataset.ready = "yes";
