// @ts-check
// Requests to the server this page came from.

/** The path under which the screens and the API are served, without a slash at its end. */
export const root = document.body.dataset.root ?? "";

const LONGEST = 2000; // characters of one parameter of an address

/** Ids as parameters of an address: one with commas, or each by itself, for an id may have commas. @param {string[]} ids */
export const inAddress = (ids) => (ids.some((id) => id.includes(",")) || ids.join(",").length > LONGEST ? ids : [ids.join(",")]);

/** What the server said when it refused a request. */
export class Problem extends Error {
  /** @param {number} status @param {{title?: string, detail?: string} & Record<string, unknown>} body */
  constructor(status, body) {
    super(body.detail || body.title || `The server answered ${status}.`);
    this.status = status;
    this.body = body;
  }
}

/** An object as JSON text. @param {Record<string, string | undefined>} fields each as JSON text */
export const object = (fields) => `{${Object.entries(fields).flatMap(([name, text]) => (text === undefined ? [] : [`${JSON.stringify(name)}:${text}`])).join(",")}}`;

/**
 * Send a request and return the JSON of the answer.
 * @param {string} path below `/api`
 * @param {{method?: string, body?: unknown, texts?: Record<string, string>, signal?: AbortSignal, base?: string}} [how]  `texts`: more
 *   fields of the body, as JSON text, for numbers that JavaScript would round; `base`: what `/api` is below, if not `root`
 * @returns {Promise<any>}
 * @throws {Problem} the server refused it
 */
export async function call(path, { method = "GET", body, texts = {}, signal, base = root } = {}) {
  const headers = body === undefined ? undefined : { "Content-Type": "application/json" };
  const sent = body === undefined ? undefined : object({ ...texts, ...Object.fromEntries(Object.entries(Object(body)).map(([name, value]) => [name, JSON.stringify(value)])) });
  const answer = await fetch(`${base}/api${path}`, { method, headers, signal, body: sent });
  const text = await answer.text();
  const data = text ? JSON.parse(text) : null;
  if (!answer.ok) throw new Problem(answer.status, data ?? {});
  return data;
}
