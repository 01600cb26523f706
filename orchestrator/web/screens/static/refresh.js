// @ts-check
// The page as the server has it now. Templates of the server are the only thing that writes rows and cards.

import { connected } from "./shell.js";

let tag = "";

/**
 * Get this page again.
 * @returns {Promise<Document | null>} null: it is as it was, or the server does not answer
 */
export async function refreshed() {
  let answer;
  try {
    answer = await fetch(location.href, { headers: { Accept: "text/html", ...(tag ? { "If-None-Match": tag } : {}) }, cache: "no-store" });
  } catch {
    connected(false);
    return null;
  }
  connected(answer.status < 500);
  if (answer.status === 304 || !answer.ok) return null;
  tag = answer.headers.get("ETag") ?? "";
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

/** Take over how many questions are open. @param {Document} page */
export function takeCount(page) {
  const [now, then] = [document.getElementById("open-questions"), page.getElementById("open-questions")];
  if (!now || !then) return;
  now.textContent = then.textContent;
  now.hidden = then.hidden;
}

/**
 * Call something again and again while the page is seen, each time after the last call has ended.
 * @param {() => Promise<void>} what
 * @param {number} [every] milliseconds
 */
export function regularly(what, every = 1500) {
  const turn = async () => {
    if (document.visibilityState === "visible") await what();
    setTimeout(turn, every);
  };
  document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible") void what(); });
  setTimeout(turn, every);
}
