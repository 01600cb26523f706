// @ts-check
// Another request to a model: its messages and options, for the step that is run again.

import { object } from "./api.js";
import { UNCHANGED } from "./fork_answer.js";
import { make } from "./elements.js";
import { visible } from "./modules/texts.js";

/** @import { Part } from "./fork_answer.js" */
/** @typedef {{ ref: string, role: string, content: string, more: string[], whole: boolean, message: Record<string, unknown> }} Shown */
/** @typedef {{ element: HTMLElement, text: () => string, gone: () => boolean, was: Shown | null }} Line */

const ROWS = 14;

/** @param {{ name: string, digest: string, messages: Shown[], options: string }} found @returns {Part} */
export function requestPart(found) {
  const fault = make("p", { class: "fault", role: "alert" }), list = make("div", { class: "messages" });
  /** @type {Line[]} */
  const lines = found.messages.map((one) => line(one.role, one));
  const options = /** @type {HTMLTextAreaElement} */ (make("textarea", { class: "json", rows: 2, "aria-label": "Options", spellcheck: "false" }));
  options.value = found.options;
  const pause = /** @type {HTMLInputElement} */ (make("input", { type: "radio", name: "fork-then", checked: true }));
  const on = /** @type {HTMLInputElement} */ (make("input", { type: "radio", name: "fork-then" }));
  const add = make("button", { type: "button", onclick: () => {
    const fresh = line("user", null);
    lines.push(fresh);
    list.append(fresh.element);
    fresh.element.querySelector("textarea")?.focus();
  } }, "Add a message");
  list.append(...lines.map((one) => one.element));
  const changed = () => lines.some((one) => (one.was ? one.gone() || one.text() !== one.was.content : !one.gone() && one.text() !== ""));
  return {
    name: "request",
    element: make("fieldset", { class: "request" }, make("legend", {}, `Request to ${found.name}`), list, make("p", {}, add),
      make("details", {}, make("summary", {}, "Options"), options), fault,
      make("div", { class: "ways" }, make("label", {}, pause, " Run this step, then pause"), make("label", {}, on, " Go on behind it"))),
    read() {
      let given;
      try {
        given = JSON.parse(options.value || "{}");
      } catch {
        fault.textContent = "Options have to be JSON.";
        return null;
      }
      const same = JSON.stringify(given) === JSON.stringify(JSON.parse(found.options));
      if (!changed() && same) return UNCHANGED;
      const kept = lines.filter((one) => !one.gone() && (one.was || one.text() !== ""));
      const messages = kept.map((one) => (one.was && one.text() === one.was.content ? { ref: one.was.ref } : { ...(one.was?.message ?? { role: "user" }), content: one.text() }));
      const request = object({ digest: JSON.stringify(found.digest), messages: changed() ? JSON.stringify(messages) : undefined, options: same ? undefined : options.value });
      return {
        texts: { request, pause: String(pause.checked) },
        before: [...found.messages.flatMap((one) => one.content.split("\n")), ...(same ? [] : [found.options])],
        after: [...kept.flatMap((one) => one.text().split("\n")), ...(same ? [] : [options.value])],
      };
    },
    fault(text) { fault.textContent = text; return true; },
  };
}

/** A message that can be edited, if all of it is shown. @param {string} role @param {Shown | null} was @returns {Line} */
function line(role, was) {
  const fixed = was !== null && !was.whole, shown = was?.content ?? "";
  const text = /** @type {HTMLTextAreaElement} */ (make("textarea", { "aria-label": `Message of ${role}`, rows: Math.min(ROWS, Math.max(2, shown.split("\n").length + Math.floor(shown.length / 90))), readonly: fixed }));
  text.value = shown;
  const gone = /** @type {HTMLInputElement} */ (make("input", { type: "checkbox" }));
  const note = fixed ? "A part of it is not shown, so it can only be kept or left out." : "";
  const element = make("div", { class: "line" }, make("div", { class: "by" }, make("b", {}, visible(role)), ...(was?.more ?? []).map((one) => make("span", { class: "soft" }, one)), make("label", {}, gone, " leave out")), text, note ? make("p", { class: "soft" }, note) : null);
  gone.addEventListener("change", () => { text.disabled = gone.checked; });
  return { element, text: () => (text.value === shown.replace(/\r\n?/g, "\n") ? shown : text.value), gone: () => gone.checked, was };
}
