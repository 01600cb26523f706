// @ts-check
// The events that a run waits for, as forms that send one; and the events that it keeps because no step took them.

import { call, object, Problem } from "./api.js";
import { ArgumentForm, resolved } from "./argument_form.js";
import { byId, make } from "./elements.js";
import { tell } from "./times.js";

/** @import { RunDocument } from "./modules/types.js" */
/** @typedef {{name: string, node: string, path: string, prompt: string, match: Record<string, unknown>, deadline: number | null, schema: Record<string, any> | null}} Awaited */
/** @typedef {{seq: number, name: string, ts: number, by: string, unawaited: string}} Kept */

const OVER = ["completed", "failed", "cancelled", "exhausted"];

/** What the steps of a run wait for, as text that is another one whenever a wait or an event comes or goes. @param {RunDocument} run */
const state = (run) => JSON.stringify([run.status, (run.of ?? run.head) > run.head, run.steps.filter((step) => step.status === "waiting").map((step) => (step.asked ?? []).map((one) => [one.seq, one.kind, !one.answer]))]);

export class RunEvents {
  /** @param {string} runId @param {boolean} readOnly */
  constructor(runId, readOnly) {
    this.path = `/runs/${encodeURIComponent(runId)}`;
    this.readOnly = readOnly;
    this.box = byId("events");
    byId("a-cards").after(this.box);
    this.state = "";
    this.shown = "";
    /** What the run awaits by now, if a person was writing when it came. @type {(() => void) | null} */
    this.next = null;
    this.box.addEventListener("focusout", () => setTimeout(() => this.next?.()));
    setInterval(() => tell(this.box), 1000);
  }

  /** The run as it is now. @param {RunDocument} run */
  async show(run) {
    const now = state(run);
    if (now === this.state) return;
    const open = run.steps.flatMap((step) => (step.status === "waiting" ? (step.asked ?? []).filter((one) => !one.answer) : []));
    document.body.classList.toggle("awaits", open.length > 0 && open.every((one) => one.kind === "event")); // its card says all
    this.state = now;
    try {
      this.fill(await call(`${this.path}/awaited`), OVER.includes(run.status));
    } catch {
      this.state = "";
    }
  }

  /** @param {{awaited: Awaited[], kept: Kept[], more_kept: number, names: string[]}} found @param {boolean} over  Whether the run has ended. */
  fill(found, over) {
    const key = JSON.stringify([found, over]);
    if (key === this.shown) return;
    this.next = null;
    if (this.box.contains(document.activeElement) && this.shown && found.awaited.length) { // a person is writing
      this.next = () => this.fill(found, over);
      this.end(found.awaited);
      return;
    }
    this.shown = key;
    const parts = over ? [] : found.awaited.map((one) => this.card(one));
    const asks = document.body.classList.contains("asks"); // a chat takes its answer on the card
    if (!over && !this.readOnly && found.names.length && (found.awaited.length || found.kept.length || !asks)) parts.push(this.other(found.names));
    if (found.kept.length) parts.push(this.kept(found.kept, found.more_kept));
    this.box.replaceChildren(...parts);
    this.box.hidden = !parts.length;
    tell(this.box);
  }

  /** Say of the forms whose event the run does not wait for any more that it does not. @param {Awaited[]} awaited */
  end(awaited) {
    const open = new Set(awaited.map((one) => JSON.stringify(one)));
    for (const card of this.box.querySelectorAll("[data-wait]")) {
      const said = card.querySelector(".outcome"), button = card.querySelector("button.first");
      if (!said || !(button instanceof HTMLButtonElement) || !(card instanceof HTMLElement) || open.has(card.dataset.wait ?? "")) continue;
      button.disabled = true;
      said.className = "outcome data warn";
      said.textContent = "The run does not wait for this event any more.";
    }
  }

  /** A wait, with the form that sends its event. @param {Awaited} one */
  card(one) {
    const deadline = one.deadline === null ? null : make("span", { class: "deadline" }, "expires ", make("time", { "data-at": one.deadline, "data-form": "until" }));
    return make("article", { class: "card event", "data-event": one.name, "data-wait": JSON.stringify(one), tabindex: "-1" },
      make("header", {}, make("h2", {}, "Waits for the event ", make("span", { class: "data" }, one.name)), make("span", { class: "grow" }), deadline),
      make("p", { class: "prompt data" }, [one.path, one.node].filter(Boolean).join(" / "), ": ", one.prompt),
      this.readOnly ? null : this.form(() => one.name, one.schema, one.match, `Send ${one.name}`));
  }

  /** A form for an event with any name. @param {string[]} names that nodes wait for */
  other(names) {
    const list = make("datalist", { id: "event-names" }, ...names.map((one) => make("option", { value: one })));
    const name = /** @type {HTMLInputElement} */ (make("input", { type: "text", list: "event-names", "aria-label": "Name of the event", maxlength: 200, autocomplete: "off", spellcheck: "false" }));
    const hint = make("span", { class: "soft about data" }, `Nodes wait for ${names.join(", ")}.`);
    name.addEventListener("input", () => {
      const given = name.value.trim(), known = !given || names.includes(given);
      hint.textContent = known ? `Nodes wait for ${names.join(", ")}.` : `No node is known to wait for this event: the run would keep it. Nodes wait for ${names.join(", ")}.`;
      hint.classList.toggle("warn", !known);
    });
    return make("details", { class: "card event other" }, make("summary", {}, "Send another event"), list,
      make("dl", { class: "arguments form" }, make("div", {}, make("dt", {}, "Event"), make("dd", {}, name, hint))),
      this.form(() => name.value.trim(), null, {}, "Send"));
  }

  /**
   * @param {() => string} name @param {Record<string, any> | null} schema of the data @param {Record<string, unknown>} match values that the data must have
   * @param {string} does
   */
  form(name, schema, match, does) {
    const whole = schema ?? {}, ways = (whole.anyOf ?? []).filter((/** @type {any} */ one) => one.type !== "null");
    const found = resolved(ways.length === 1 ? ways[0] : whole, whole);
    const properties = found.type === "object" && found.properties ? found.properties : null;
    const texts = Object.fromEntries(Object.entries(match).map(([key, value]) => [key, JSON.stringify(value)]));
    const fields = properties
      ? new ArgumentForm(texts, { ...found, $defs: whole.$defs, properties })
      : new ArgumentForm(schema === null && Object.keys(match).length ? { data: JSON.stringify(match, null, 2) } : {}, { properties: { data: schema ?? {} }, $defs: whole.$defs });
    const said = make("p", { class: "outcome data", role: "status" }), button = /** @type {HTMLButtonElement} */ (make("button", { class: "first" }, does));
    const form = make("form", {}, fields.element, make("div", { class: "acts" }, button), said);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const read = fields.read(), event_name = name();
      said.className = "outcome data";
      said.textContent = event_name ? "" : "Name the event.";
      said.classList.toggle("bad", !event_name);
      if (!read || !event_name || button.disabled) return;
      button.disabled = true;
      try {
        const data = properties ? object(read) : (read.data ?? "null");
        const answer = await call(`${this.path}/send`, { method: "POST", body: { event: event_name }, texts: { data } });
        said.className = answer.warning ? "outcome data warn" : "outcome data";
        said.textContent = answer.warning ? `The run keeps the event, but ${answer.warning}.` : "The run has the event.";
        if (document.activeElement instanceof HTMLElement && this.box.contains(document.activeElement)) document.activeElement.blur();
        this.shown = "";
        if (answer.warning) this.keptAgain();
      } catch (error) {
        said.classList.add("bad");
        said.textContent = error instanceof Problem ? error.message : "The server does not answer; whether the run has the event is not known.";
      }
      button.disabled = false;
    });
    return form;
  }

  /** Show what the run keeps by now; the forms stay as they are. */
  async keptAgain() {
    const found = await call(`${this.path}/awaited`).catch(() => null);
    if (!found?.kept.length) return;
    this.box.querySelector(".kept")?.remove();
    this.box.append(this.kept(found.kept, found.more_kept));
    tell(this.box);
  }

  /** @param {Kept[]} kept @param {number} more */
  kept(kept, more) {
    return make("details", { class: "card kept", open: kept.some((one) => one.unawaited) }, make("summary", {}, `${kept.length + more} ${kept.length + more === 1 ? "event that no step took" : "events that no step took"}`),
      make("ul", {}, ...kept.map((one) => make("li", { class: one.unawaited ? "warn" : "" }, make("b", { class: "data" }, one.name), ` (record ${one.seq}`, one.by ? `, by ${one.by}` : "", ", ", make("time", { "data-at": one.ts }), ")",
        make("span", { class: "soft data" }, one.unawaited ? `: ${one.unawaited}` : ": kept for a step that waits for it"))), more ? make("li", { class: "soft" }, `and ${more} more`) : null));
  }
}
