// A page that has its runs in itself.
import { byId } from "./elements.js";
import { openPage } from "./page.js";
import { FrozenSource } from "./source.js";

/** @import { RunDocument } from "./types.js" */

/** @type {RunDocument[]} */
const runs = JSON.parse(byId("data").textContent ?? "[]");
void openPage(runs.map((run) => new FrozenSource(run)));
