// Where something failed: the user's line of code first, then the traceback with the frames of libraries folded.
import { make } from "./elements.js";
import { visible } from "./texts.js";

/** @import { Trace } from "./types.js" */

/** @param {Trace | null | undefined} trace @returns {HTMLElement | null} */
export function tracebackElement(trace) {
  if (!trace) return null;
  if (trace.left_out) {
    const said = "The traceback is left out: the others of this page have 2,000,000 characters already. The journal has it.";
    return make("div", { class: "trace" }, placeElement(trace), make("p", { class: "note" }, said));
  }
  return make("div", { class: "trace" }, placeElement(trace),
    make("details", { open: !trace.place }, make("summary", {}, "Traceback"), trace.parts.map(([library, text]) => {
      const lines = make("pre", { class: "data", tabindex: 0 }, visible(text));
      return library ? make("details", { class: "libraries" }, make("summary", {}, "Behind it, in libraries"), lines) : lines;
    })));
}

/** The user's line of code that is nearest to an error. @param {Trace | null | undefined} trace */
export function placeElement(trace) {
  if (!trace?.place) return null;
  return make("div", { class: "place" }, make("span", { class: "data" }, visible(trace.place)), trace.code ? make("pre", { class: "data", tabindex: 0 }, visible(trace.code)) : null);
}
