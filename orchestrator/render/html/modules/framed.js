// A page in a frame, as a notebook has it: of runs that it has in itself, or of one that the notebook posts as it goes on.
import { byId } from "./elements.js";
import { openPage } from "./page.js";
import { PostedSource } from "./posted_source.js";
import { FrozenSource } from "./source.js";

/** @import { RunDocument } from "./types.js" */

/** @type {{ live: boolean, runs: RunDocument[] }} */
const { live, runs } = JSON.parse(byId("data").textContent ?? "{}");
// A link to a place in this page would load the page around it: that one's address is the base of addresses here.
document.addEventListener("click", (event) => {
  if (event.target instanceof Element && event.target.closest("a[href^='#']")) event.preventDefault();
});
void openPage(runs.map((run) => live ? new PostedSource(run) : new FrozenSource(run)));
