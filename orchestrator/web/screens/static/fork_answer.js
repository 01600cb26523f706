// @ts-check
// Another answer to a question of the run that is forked.

import { object } from "./api.js";
import { ArgumentForm } from "./argument_form.js";
import { make } from "./elements.js";
import { ResultForm } from "./outcome_form.js";

/** @import { Outcome } from "./outcome_form.js" */

/**
 * A part of the form of a fork.
 * @typedef {object} Part
 * @property {string} name  What it gives: a field of the request.
 * @property {HTMLElement} element
 * @property {(focus: boolean) => (Change | null)} read  What is changed; null: a field says what is wrong with it.
 * @property {(text: string) => boolean} fault  Say what is wrong; whether there is a place for it.
 */

/**
 * Fields of the request as JSON texts, and the lines that differ.
 * @typedef {{ texts: Record<string, string>, before: string[], after: string[] }} Change
 */

/** @typedef {{ label: string, was?: boolean, read: (focus: boolean) => { answer: Record<string, string>, said: string } | null, element?: HTMLElement }} Way */

/** @type {Change} */
export const UNCHANGED = { texts: {}, before: [], after: [] };
let count = 0;

/** @param {any} found the question, and the answer that it had @returns {Part} */
export function answerPart({ question, answer, args, value, blanked }) {
  const ways = waysOf(question, answer, args, value), was = ways.findIndex((way) => way.was ?? isGiven(way.label, answer));
  const name = `fork-answer-${++count}`, fault = make("p", { class: "fault", role: "alert" });
  const radios = ways.map((_, at) => /** @type {HTMLInputElement} */ (make("input", { type: "radio", name, value: String(at), checked: at === was })));
  const chosen = () => ways[radios.findIndex((one) => one.checked)];
  const draw = () => ways.forEach((way) => { if (way.element) way.element.hidden = way !== chosen(); });
  const given = ways[was]?.read(false);
  draw();
  return {
    name: "answer",
    element: make("fieldset", { class: "answer", onchange: draw }, make("legend", {}, "Answer"),
      question.prompt ? make("p", { class: "prompt" }, question.prompt) : null,
      make("div", { class: "ways" }, ways.map((way, at) => make("label", {}, radios[at], ` ${way.label}${at === was ? " (as it was)" : ""}`))),
      ways.flatMap((way) => (way.element ? [way.element] : [])),
      blanked ? make("p", { class: "soft" }, "Secrets are blanked in it: what is edited takes the place of all of it.") : null, fault),
    read(focus) {
      const read = chosen()?.read(focus);
      if (read === undefined) return UNCHANGED;
      if (!read) return null;
      if (given && read.said === given.said) return UNCHANGED;
      return { texts: { answer: object({ ...read.answer, digest: JSON.stringify(question.digest) }) }, before: given ? given.said.split("\n") : [], after: read.said.split("\n") };
    },
    fault(text) { fault.textContent = text; return true; },
  };
}

/** @param {string} label @param {any} answer */
function isGiven(label, answer) {
  return { approve: label === "Approve", deny: label === "Deny", value: label === "Answer" || label === answer.value }[/** @type {string} */ (answer.type)] ?? false;
}

/** The answers that fit a question. @param {any} question @param {any} answer @param {Record<string, string> | null} args @param {string | null} value @returns {Way[]} */
function waysOf(question, answer, args, value) {
  if (question.outcomes?.length) return question.outcomes.map((/** @type {Outcome} */ one) => became(one, question.schema, answer, value));
  const reason = /** @type {HTMLInputElement} */ (make("input", { type: "text", "aria-label": "Reason", placeholder: "Reason (may be empty)" }));
  reason.value = answer.type === "deny" ? answer.reason ?? "" : "";
  const deny = { label: "Deny", element: reason, read: () => ({ answer: { deny: JSON.stringify({ reason: reason.value }) }, said: `denied${reason.value ? `: ${reason.value}` : ""}` }) };
  /** @type {Way[]} */
  const choices = (question.choices ?? []).map((/** @type {string} */ choice) => ({ label: choice, read: () => ({ answer: { value: JSON.stringify(choice) }, said: choice }) }));
  if (question.kind === "approval") return [approval(args), deny, ...choices];
  if (choices.length) return question.kind === "input" ? [...choices, deny] : choices;
  return [valued(question.schema, value), deny];
}

/** What became of a call. @param {Outcome} one @param {any} schema @param {any} answer @param {string | null} value @returns {Way} */
function became(one, schema, answer, value) {
  const was = answer.value?.choice === one.choice, form = one.result ? new ResultForm(schema, was ? value : null) : null;
  return {
    label: one.label, was, element: form?.element,
    read(focus) {
      if (!form) return { answer: { value: JSON.stringify(one.choice) }, said: one.label };
      const text = form.read({ focus });
      if (text === null) return null;
      const answer = object({ choice: JSON.stringify(one.choice), result: text });
      return { answer: { value: answer }, said: `${one.label}\n${text.startsWith('"') ? JSON.parse(text) : text}` };
    },
  };
}

/** @param {Record<string, string> | null} args @returns {Way} */
function approval(args) {
  const form = args === null ? null : new ArgumentForm(args, {}), shown = form?.read({ focus: false });
  return {
    label: "Approve", element: form?.element,
    read(focus) {
      const now = form ? form.read({ focus }) : {};
      if (!now) return null;
      const same = !form || Object.keys(now).every((name) => now[name] === shown?.[name]);
      if (same) return { answer: { approve: "true" }, said: "approved" };
      const lines = Object.entries(now).map(([name, text]) => `${name}: ${text.startsWith('"') ? JSON.parse(text) : text}`);
      return { answer: { approve: object({ args: object(now) }) }, said: ["approved with", ...lines].join("\n") };
    },
  };
}

/** @param {any} schema @param {string | null} value @returns {Way} */
function valued(schema, value) {
  const form = new ArgumentForm(value === null ? {} : { answer: value }, { ...(schema?.$defs ? { $defs: schema.$defs } : {}), properties: { answer: schema ?? { type: "string" } } });
  return {
    label: "Answer", element: form.element,
    read(focus) {
      const now = form.read({ focus });
      if (!now) return null;
      const text = now.answer ?? "null";
      return { answer: { value: text }, said: text.startsWith('"') ? JSON.parse(text) : text };
    },
  };
}
