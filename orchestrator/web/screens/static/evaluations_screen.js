// @ts-check
// Evaluations: ages, and keys that move through the rows and open their runs.

import { move, rowAt } from "./rows.js";
import { addKeys } from "./shell.js";
import { tell } from "./times.js";

for (const time of document.querySelectorAll("time[data-age]"))
  if (time instanceof HTMLElement) time.dataset.at = String(Date.now() / 1000 - Number(time.dataset.age));
tell(document);
addKeys([
  { keys: "j or ArrowDown", does: "next row", repeats: true, act: () => move(1) },
  { keys: "k or ArrowUp", does: "previous row", repeats: true, act: () => move(-1) },
  { keys: "Enter", does: "open it", act: () => { const link = rowAt()?.querySelector("a.run, a"); if (link instanceof HTMLElement) link.click(); } },
]);
document.documentElement.dataset.ready = "yes";
