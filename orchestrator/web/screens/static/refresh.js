// @ts-check
// The page as the server has it now. Templates of the server are the only thing that writes rows and cards.

import { root } from "./api.js";
import { connected } from "./shell.js";

const PATIENCE = 4000; // milliseconds before a stream that was refused is asked for again
let tag = "";

/**
 * Get this page again.
 * @param {{answers?: () => void}} [how]  What to do if the server answers.
 * @returns {Promise<Document | null>} null: it is as it was, or the server does not answer
 */
export async function refreshed({ answers } = {}) {
  let answer, text;
  try {
    answer = await fetch(location.href, { headers: { Accept: "text/html", ...(tag ? { "If-None-Match": tag } : {}) }, cache: "no-store" });
    text = await answer.text();
  } catch {
    connected(false);
    return null;
  }
  connected(answer.status < 500);
  if (answer.status < 500) answers?.();
  if (answer.status === 304 || !answer.ok) return null;
  tag = answer.headers.get("ETag") ?? "";
  const page = new DOMParser().parseFromString(text, "text/html"), { shown } = page.body.dataset;
  if (shown) document.body.dataset.shown = shown;
  return page;
}

/** Take over how many questions are open. @param {Document} page */
export function takeCount(page) {
  const [now, then] = [document.getElementById("open-questions"), page.getElementById("open-questions")];
  if (!now || !then) return;
  now.textContent = then.textContent;
  now.hidden = then.hidden;
}

/**
 * Follow what this page shows: call something whenever the stream of the page says that it is another one. Where there is
 * no stream, because the server is away or has too many, call it every few seconds.
 * @param {() => Promise<void>} changed
 * @param {{background?: () => boolean}} [how]  Whether the page is followed while it is not seen. A browser has six
 *   connections to a server, so a page that is not seen gives its own back.
 */
export function following(changed, { background = () => false } = {}) {
  /** @type {EventSource | null} */
  let stream = null;
  let [asking, again, timer] = [false, false, 0];

  const ask = async () => {
    again = true;
    if (asking) return;
    asking = true;
    try {
      while (again) {
        again = false;
        await changed();
      }
    } finally {
      asking = false;
    }
  };
  const stop = () => {
    clearTimeout(timer);
    stream?.close();
    stream = null;
  };
  const listen = () => {
    stop();
    const mine = new EventSource(`${root}/api${document.body.dataset.changes}`);
    let ready = false;
    stream = mine;
    mine.onmessage = (message) => {
      const { type, version } = JSON.parse(message.data);
      connected(true);
      ready ||= type === "ready"; // before it comes what was there already
      if (ready && !(version && version === document.body.dataset.shown)) void ask();
    };
    mine.onerror = () => {
      void ask(); // which says whether the server answers
      if (mine.readyState === EventSource.CLOSED && stream === mine) timer = setTimeout(listen, PATIENCE);
    };
  };
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState !== "visible") {
      if (!background()) stop();
      return;
    }
    if (!stream) listen();
    void ask();
  });
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => { if (event.persisted) listen(); });
  listen();
}
