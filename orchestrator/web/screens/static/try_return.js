// @ts-check
// From the page of a run that was only tried, back to the editor of its text.

import { root } from "./api.js";
import { byId, make } from "./elements.js";

const KEY = "compose:return";
const TRY = "/try";

/** Remember the address of this page as the one to come back to. */
export function returnHere() {
  try { sessionStorage.setItem(KEY, location.pathname + location.search); } catch { /* the browser allows it not */ }
}

/** Show the way back, on a page of a run that was tried. */
export function offerReturn() {
  if (!root.endsWith(TRY)) return;
  const editor = `${root.slice(0, -TRY.length)}/compose`;
  let address = editor;
  try {
    const kept = sessionStorage.getItem(KEY) ?? "";
    if (kept === editor || kept.startsWith(`${editor}?`)) address = kept;
  } catch { /* the browser allows it not */ }
  byId("link").before(make("a", { href: address, class: "return" }, "Back to the editor"));
}
