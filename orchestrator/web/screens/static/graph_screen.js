// @ts-check
// One graph of the server: its picture, and the form of its state, which starts a run.

import { call, object, root } from "./api.js";
import { ArgumentForm } from "./argument_form.js";
import { Picture } from "./compose/picture.js";
import { byId } from "./elements.js";
import { RunOptions } from "./run_options.js";

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
  const options = new RunOptions({ ...JSON.parse(form.dataset.options ?? "{}"), id: true });
  byId("options").append(options.element);
  const button = /** @type {HTMLButtonElement} */ (form.querySelector("[type=submit]"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const fault = byId("fault");
    fault.textContent = "";
    const given = parts.map((one) => one.read()), chosen = options.read();
    if (given.includes(null) || !chosen) return;
    button.disabled = true;
    try {
      const fields = Object.assign({}, ...given);
      const input = Object.keys(fields).length ? object(fields) : "null"; // an empty object may be a value
      const run = await call("/runs", { method: "POST", body: { ...chosen, graph: form.dataset.graph }, texts: { input } });
      location.assign(`${root}/runs/${encodeURIComponent(run.run_id)}`);
    } catch (error) {
      fault.textContent = options.blame(error, parts);
      const folded = /** @type {HTMLDetailsElement} */ (byId("others"));
      if ([...folded.querySelectorAll(".fault")].some((one) => one.textContent)) folded.open = true;
      button.disabled = false;
    }
  });
  button.disabled = false;
  const [field] = form.querySelectorAll("input, textarea, select");
  if (field instanceof HTMLElement && matchMedia("(pointer: fine)").matches && !location.hash) field.focus({ preventScroll: true }); // a screen keyboard would cover the page
}

const picture = new Picture(byId("canvas"), { node: () => undefined, edge: () => undefined }), image = byId("canvas").querySelector("img");
const answer = await fetch(image?.src ?? "").catch(() => null);
if (answer?.ok) await picture.show(await answer.text()); // else the image stays
document.documentElement.dataset.ready = "yes";
