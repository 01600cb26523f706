// What is looked at, as the address behind `#`: step, tab, edge, filters. Of a second run the names begin with `b.`.
import { everything, ORDERS, TRAITS } from "./choice.js";
import { TABS } from "./detail.js";
import { VIEWS } from "./transcript.js";

/** @import { Tab } from "./detail.js" */
/** @import { View } from "./transcript.js" */
/** @import { Choice } from "./choice.js" */

/**
 * What an address says of one run.
 * @typedef {object} Visit
 * @property {number | null} step  From 1 on.
 * @property {number | null} seq
 * @property {Tab} tab
 * @property {string | null} edge
 * @property {View | null} view  null: what fits the graph.
 * @property {Choice} choice
 * @property {number | null} fork  The record from which a new run is about to begin.
 */

/**
 * @param {Visit} visit
 * @param {string} name  Put before each name.
 * @returns {string}
 */
export function written(visit, name) {
  /** @type {[string, string | number | null][]} */
  const words = [
    ["step", visit.step], ["seq", visit.step === null ? visit.seq : null], ["tab", visit.tab === "step" || name ? null : visit.tab], ["edge", visit.edge], ["view", visit.view],
    ["sort", visit.choice.order === "order" ? null : visit.choice.order], ["only", visit.choice.only.join(",") || null],
    ["fork", visit.fork], ["kind", visit.choice.kind || null], ["q", visit.choice.text.trim() || null],
  ];
  return words.filter(([, value]) => value !== null).map(([key, value]) => name + key + "=" + encodeURIComponent(String(value)).replaceAll("%2C", ",")).join("&");
}

/**
 * @param {string} address  With its `#`.
 * @param {string} name
 * @returns {Visit}
 */
export function read(address, name) {
  const words = new URLSearchParams(address.slice(1)), choice = everything();
  const counted = (/** @type {string} */ key) => { const value = Number(words.get(name + key)); return Number.isInteger(value) && value >= 1 ? value : null; };
  choice.order = ORDERS.find((order) => order === words.get(name + "sort")) ?? "order";
  choice.only = TRAITS.filter((trait) => (words.get(name + "only") ?? "").split(",").includes(trait));
  choice.kind = words.get(name + "kind") ?? "";
  choice.text = words.get(name + "q") ?? "";
  return { step: counted("step"), seq: counted("seq"), tab: TABS.find((tab) => tab === words.get("tab")) ?? "step", edge: words.get(name + "edge"), view: VIEWS.find((view) => view === words.get(name + "view")) ?? null, choice, fork: counted("fork") };
}
