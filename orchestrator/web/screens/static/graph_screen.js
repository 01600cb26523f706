// @ts-check
// One graph of the server: the form of its state starts a run.

import { call, object, root } from "./api.js";
import { ArgumentForm } from "./argument_form.js";
import { byId } from "./elements.js";

/** Labels as they are written, `name: value, name: value`. @param {string} text @returns {Record<string, string>} */
function labelsOf(text) {
  /** @type {[string, string][]} */
  const pairs = [];
  for (const part of text.split(",").map((one) => one.trim()).filter(Boolean)) {
    const colon = part.indexOf(":");
    if (colon < 1) throw new SyntaxError(`Write labels as name: value, and not ${part}.`);
    pairs.push([part.slice(0, colon).trim(), part.slice(colon + 1).trim()]);
  }
  return Object.fromEntries(pairs);
}

const form = document.getElementById("start");
if (form instanceof HTMLFormElement) {
  const schema = JSON.parse(form.dataset.form ?? "{}");
  const names = Object.keys(schema.properties ?? {});
  const first = new Set([...(schema["x-input"] ?? []), ...(schema.required ?? [])]);
  const shown = first.size ? first : new Set(names);
  /** @param {(name: string) => boolean} wanted */
  const part = (wanted) => new ArgumentForm({}, { ...schema, properties: Object.fromEntries(names.filter(wanted).map((name) => [name, schema.properties[name]])) });
  const parts = [part((name) => shown.has(name)), part((name) => !shown.has(name))];
  byId("fields").append(parts[0].element);
  if (parts[1].fields.size) {
    byId("others").append(parts[1].element);
    byId("others").hidden = false;
  }
  const button = /** @type {HTMLButtonElement} */ (form.querySelector("[type=submit]"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const fault = byId("fault");
    fault.textContent = "";
    const given = parts.map((one) => one.read());
    if (given.includes(null)) return;
    button.disabled = true;
    try {
      const labels = labelsOf(/** @type {HTMLInputElement} */ (byId("labels")).value);
      const fields = Object.assign({}, ...given);
      const input = Object.keys(fields).length ? object(fields) : "null"; // an empty object may be a value
      const run = await call("/runs", { method: "POST", body: { graph: form.dataset.graph, labels }, texts: { input } });
      location.assign(`${root}/runs/${encodeURIComponent(run.run_id)}`);
    } catch (error) {
      fault.textContent = error instanceof Error ? error.message : String(error);
      button.disabled = false;
    }
  });
  button.disabled = false;
}
document.documentElement.dataset.ready = "yes";
