// The source of the function behind a step, from the server: asked for when a reader opens it.
import { make } from "./elements.js";
import { visible } from "./texts.js";

/** @import { NodeSource, Step } from "./types.js" */

/**
 * @param {Step} step
 * @param {(step: Step) => Promise<NodeSource>} read  Rejects with an error whose message a reader understands.
 * @param {Map<string, NodeSource>} known  What was read.
 * @returns {HTMLElement}
 */
export function sourceElement(step, read, known) {
  const body = make("div"), found = known.get(step.part);
  const box = /** @type {HTMLDetailsElement} */ (make("details", { class: "source" }, make("summary", {}, "Source"), body));
  if (found) body.append(...lines(step, found));
  else box.addEventListener("toggle", async () => {
    if (!box.open || body.childNodes.length) return;
    try {
      const source = await read(step);
      known.set(step.part, source);
      body.replaceChildren(...lines(step, source));
    } catch (error) { body.replaceChildren(make("p", { class: "note" }, visible(error instanceof Error ? error.message : error))); }
  });
  return box;
}

/** @param {Step} step @param {NodeSource} source */
function lines(step, source) {
  const traces = [step.trace, ...(step.retries ?? []).map((retry) => retry[2])].flatMap((trace) => trace?.parts.map((part) => part[1]) ?? []).join("\n");
  const code = source.text.replace(/\n$/, "").split("\n").map((line, at) => {
    const number = source.line + at, failed = traces.includes("File \"" + source.file + "\", line " + number + ", in ");
    return make("div", { class: failed ? "at" : null }, make("span", { class: "number", "aria-hidden": "true" }, String(number)), visible(line) || " ");
  });
  return [make("p", { class: "note data" }, visible(source.file) + ", line " + source.line + (source.same ? "" : ". The code of the graph has changed since this run began.")), make("pre", { class: "code", tabindex: 0 }, code)];
}
