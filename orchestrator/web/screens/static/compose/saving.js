// @ts-check
// Saving the text as a file of the server, never over another one without asking; or as a download.

import { call, Problem } from "../api.js";
import { make } from "../elements.js";
import { differences } from "../modules/differences.js";

const KINDS = { " ": "same", "+": "add", "-": "cut" };

/**
 * Save a text.
 * @param {string} name @param {string} text @param {boolean} there  Whether the server can have files.
 * @param {string | null} known  The digest of the file that this page knows; null: it knows of none.
 * @returns {Promise<{saved: boolean, says: string, bad?: boolean, digest?: string, taken?: boolean}>}  `taken`: the name is that of a graph which no file replaces.
 */
export async function save(name, text, there, known) {
  let replaces = known;
  for (;;) {
    try {
      if (!there) return given(name, text);
      const found = await call("/graphs/save", { method: "POST", body: { name, text, replaces } });
      return { saved: true, says: `Saved as ${found.file}.`, digest: found.digest };
    } catch (error) {
      if (!(error instanceof Problem)) return { saved: false, says: "The server does not answer; nothing was saved.", bad: true };
      const { digest } = error.body;
      if (typeof digest === "string") {
        if (!(await mayReplace(name, text, error.body, replaces !== null))) return { saved: false, says: "Nothing was saved." };
        replaces = digest;
      } else if (String(error.body.type).endsWith(":save-off")) return given(name, text);
      else return { saved: false, says: error.message, bad: true, taken: String(error.body.type).endsWith(":graph-given") };
    }
  }
}

/**
 * Ask for another name.
 * @param {string} name @param {string} says  Why.
 * @returns {Promise<string>} "": none was given
 */
export function anotherName(name, says) {
  return new Promise((done) => {
    let given = "";
    const field = /** @type {HTMLInputElement} */ (make("input", { type: "text", id: "another-name", value: `my_${name}`, required: true, pattern: "[\\p{L}_][\\p{L}\\p{M}\\p{N}_\\-]*", title: "letters, digits, _ and -", autocomplete: "off", spellcheck: "false" }));
    const form = make("form", {}, make("h2", {}, "Save under another name"), make("p", { class: "soft data" }, says), make("label", { for: "another-name" }, "Name"), field,
      make("div", { class: "acts" }, make("button", { class: "first" }, "Save"), make("button", { type: "button", onclick: () => dialog.close() }, "Cancel")));
    const dialog = /** @type {HTMLDialogElement} */ (make("dialog", { class: "name", "aria-label": "Save under another name" }, form));
    form.addEventListener("submit", (event) => { event.preventDefault(); given = field.value; dialog.close(); });
    dialog.addEventListener("close", () => { dialog.remove(); done(given); });
    document.body.append(dialog);
    dialog.showModal();
    field.select();
  });
}

/** @param {string} name @param {string} text */
function given(name, text) {
  download(name, text);
  return { saved: true, says: `This server keeps no graphs: ${name}.yaml is a download.` };
}

/** Give the text to the browser as a file. @param {string} name @param {string} text */
export function download(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/yaml" }));
  link.download = `${name}.yaml`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/**
 * Ask whether a file that is there may be replaced.
 * @param {string} name @param {string} text @param {Record<string, unknown>} there @param {boolean} again
 * @returns {Promise<boolean>}
 */
function mayReplace(name, text, there, again) {
  const before = typeof there.text === "string" ? there.text : null;
  const lines = before !== null ? differences(before, text).map(([sign, line]) => ({ kind: KINDS[sign], line }))
    : String(there.difference ?? "").split("\n").filter((line) => !/^(---|\+\+\+) /.test(line)).map((line) => ({ kind: line.startsWith("+") ? "add" : line.startsWith("-") ? "cut" : "same", line: line.replace(/^[-+ ]/, "") }));
  return new Promise((done) => {
    let replaced = false;
    const dialog = /** @type {HTMLDialogElement} */ (make("dialog", { class: "replace", "aria-label": "Replace the file" },
      make("h2", {}, make("span", { class: "data" }, name), again ? ".yaml was changed by someone else" : ".yaml is there already"),
      make("p", { class: "soft" }, "What would change in it:"),
      make("div", { class: "diff", tabindex: "0", role: "group", "aria-label": "Difference" }, ...lines.map(({ kind, line }) => make("div", { class: kind }, line || " "))),
      make("div", { class: "acts" }, make("button", { type: "button", class: "risky", onclick: () => { replaced = true; dialog.close(); } }, "Replace it"),
        make("button", { type: "button", onclick: () => dialog.close() }, "Keep it"),
        make("button", { type: "button", class: "quiet", onclick: () => download(name, text) }, "Download instead"))));
    dialog.addEventListener("close", () => { dialog.remove(); done(replaced); });
    document.body.append(dialog);
    dialog.showModal();
  });
}
