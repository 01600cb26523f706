// @ts-check
// The questions of all runs: approved, denied, edited, answered here; answered elsewhere they say so.

import { root } from "./api.js";
import { byId } from "./elements.js";
import { Card } from "./question_card.js";
import { following, refreshed, takeCount } from "./refresh.js";
import { addKeys, note } from "./shell.js";
import { tell } from "./times.js";

const cards = byId("cards");
const KEPT = 20; // cards that are over and still shown
const readOnly = document.body.hasAttribute("data-read-only");

/** @type {Map<string, Card>} */
const known = new Map();
const take = () => {
  for (const element of cards.querySelectorAll(".card")) if (element instanceof HTMLElement && !known.has(element.id)) known.set(element.id, new Card(element, { readOnly, answered: follow, left: (card) => behind(card) }));
};

let first = true;
async function follow() {
  const page = await refreshed({ answers: () => { for (const card of known.values()) card.reached(); } });
  if (!page) return;
  takeCount(page);
  byId("summary").textContent = page.getElementById("summary")?.textContent ?? "";
  const there = page.getElementById("cards");
  if (!there) return;
  byId("pages").replaceChildren(...[...(page.getElementById("pages")?.childNodes ?? [])].map((one) => document.adoptNode(one)));
  for (const [id, card] of known) {
    const then = page.getElementById(id);
    if (!then && !card.over) void card.gone();
    if (!then || then.dataset.digest === card.element.dataset.digest) continue;
    known.delete(id); // it asks something else by now
    card.element.replaceWith(document.adoptNode(then));
    tell(then);
  }
  take();
  clear();
  const more = [...there.querySelectorAll(".card")].filter((one) => !known.has(one.id));
  if (!more.length) return;
  cards.querySelector(".empty")?.remove();
  cards.append(...more.map((one) => document.adoptNode(one)));
  tell(cards);
  take();
  if (!first && "Notification" in globalThis && Notification.permission === "granted" && document.visibilityState !== "visible")
    new Notification(more.length === 1 ? "A run waits for you" : `${more.length} runs wait for you`, { body: more[0].querySelector("h2")?.textContent ?? "", tag: "orchestrator-inbox" });
}

/** Remove the first of many cards that are over. */
function clear() {
  const over = [...known].filter(([, card]) => card.over && !card.element.contains(document.activeElement));
  for (const [id, card] of over.slice(0, Math.max(0, over.length - KEPT))) {
    known.delete(id);
    card.element.remove();
  }
}

const open = () => [...known.values()].filter((card) => !card.over);
/** @param {number} by */
function move(by) {
  const all = open();
  const at = all.findIndex((card) => card.element.contains(document.activeElement));
  const next = all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + by))];
  next?.element.focus();
  next?.element.scrollIntoView({ block: "nearest" });
}
/** Go to the question behind one that is over; behind the last one, to the one before it. @param {Card} card */
function behind(card) {
  const all = [...known.values()], at = all.indexOf(card);
  const next = all.slice(at + 1).find((one) => !one.over) ?? all.slice(0, at).reverse().find((one) => !one.over);
  if (!next) return;
  next.came = performance.now();
  next.element.focus();
  next.element.scrollIntoView({ block: "nearest" });
}
const current = () => open().find((card) => card.element.contains(document.activeElement));
/** @param {(card: Card) => unknown} act */
const withCurrent = (act) => () => { const card = current(); if (card && card.kind === "approval" && !readOnly) act(card); else if (!card && !document.activeElement?.closest(".card")) move(0); };

addKeys([
  { keys: "j or ArrowDown", does: "next question", repeats: true, act: () => move(1) },
  { keys: "k or ArrowUp", does: "previous question", repeats: true, act: () => move(-1) },
  { keys: "a", does: "approve", act: withCurrent((card) => card.approveByKey()) },
  { keys: "d", does: "deny, with a reason", act: withCurrent((card) => card.ask()) },
  { keys: "e", does: "edit the arguments", act: withCurrent((card) => { if (!card.form) card.edit(true); }) },
  { keys: "Enter", does: "open the run", act: () => { const card = current(); if (card) location.assign(`${root}/runs/${encodeURIComponent(card.run)}`); } },
]);

const notify = byId("notify");
if ("Notification" in globalThis && Notification.permission === "default") {
  notify.hidden = false;
  notify.addEventListener("click", async () => {
    const said = await Notification.requestPermission();
    notify.hidden = said !== "default";
    note(said === "granted" ? "New questions are shown as notifications." : "Notifications are switched off in this browser.");
  });
}
take();
first = false;
following(follow, { background: () => "Notification" in globalThis && Notification.permission === "granted" });
document.documentElement.dataset.ready = "yes";
