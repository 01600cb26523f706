// @ts-check
// What can stand at the caret of a graph file.

import { entries, FAILURES, GraphText, indentOf, statement, valueOf } from "./yaml_text.js";

/** @typedef {{name: string, required: boolean, type: string, default: string, port: string, summary: string}} KindField */
/** @typedef {{name: string, summary: string, category: string, fields: KindField[], outcomes: string[] | null, example: string}} Kind */
/**
 * What the server knows, and the graph that is edited.
 * @typedef {object} Known
 * @property {Kind[]} kinds
 * @property {KindField[]} common  Fields of every kind.
 * @property {{name: string, description: string}[]} tools
 * @property {string[]} models
 * @property {string[]} joins
 * @property {Record<string, Record<string, string>>} words  Place -> word -> what it is for.
 * @property {Record<string, string[]>} outcomes  Of the nodes, as far as they are known.
 * @property {{key: string, type: string}[]} fields  Of the state.
 */
/** @typedef {{text: string, about: string, put?: string}} Choice  `put`: what is written, if it is more than the text. */
/** @typedef {{from: number, choices: Choice[], sure: boolean}} Meant  `from`: column where the word begins; `sure`: nothing else can stand here. */

const LONGEST = 1000; // characters of a line in which words are completed

/**
 * @param {string[]} lines
 * @param {number} line from 0
 * @param {number} column
 * @param {Known} known
 * @returns {Meant | null}
 */
export function meant(lines, line, column, known) {
  if (lines[line].length > LONGEST) return null;
  const before = lines[line].slice(0, column);
  const graph = around(lines, line), text = new GraphText(lines, ...graph);
  const { form, entry } = text.shape;
  if (entry && line >= entry.first && line <= entry.last && form !== "none" && (line > entry.first || form === "line")) return inEdges(before, text, known, form === "line");
  if (entry && line > entry.last && entry.last >= entry.first && form === "block" && indentOf(before) > entry.indent && !lines[line].trim()) return inEdges(before, text, known, false);
  const slot = /\{([\p{L}_][\p{L}\p{M}\p{N}_]*)?$/u.exec(before);
  const quoted = (before.match(/"/g)?.length ?? 0) % 2 === 1 || (before.match(/'/g)?.length ?? 0) % 2 === 1;
  if (slot && (quoted || inBlock(lines, line))) return words(before, slot[1] ?? "", fieldsOf(text, known), true);
  const path = pathAt(lines, line, before);
  return inMapping(before, path, text, known);
}

/** The innermost graph that has a line, as the arguments of a GraphText. @param {string[]} lines @param {number} line @returns {[number, number, number | null]} */
function around(lines, line) {
  /** @type {[number, number, number | null]} */
  let found = [0, lines.length - 1, null];
  for (let deep = 0; deep < 5; deep++) {
    const node = new GraphText(lines, ...found).nodes.find((one) => one.first < line && line <= one.last);
    const graph = node && entries(lines, node.first + 1, node.last).find((one) => one.key === "graph" && one.first < line && line <= one.last);
    if (!graph || graph.last === graph.first) break;
    found = [graph.first + 1, graph.last, null];
  }
  return found;
}

/** Whether a line is in a block text. @param {string[]} lines @param {number} line */
function inBlock(lines, line) {
  const indent = indentOf(lines[line]);
  for (let at = line - 1; at >= 0; at--) {
    if (!lines[at].trim() || indentOf(lines[at]) >= indent) continue;
    return /[|>][-+\d]*\s*$/.test(lines[at]) || /^["'].*[^"']$/.test(valueOf(lines[at]));
  }
  return false;
}

/** The keys around a place, outermost first, with those of a mapping in braces. @param {string[]} lines @param {number} line @param {string} before */
function pathAt(lines, line, before) {
  /** @type {string[]} */
  const path = [];
  let indent = lines[line].trim() ? indentOf(lines[line]) : before.length;
  for (let at = line - 1; at >= 0 && indent > 0; at--) {
    if (!lines[at].trim() || /^\s*#/.test(lines[at]) || indentOf(lines[at]) >= indent) continue;
    const [one] = entries(lines, at, at);
    indent = indentOf(lines[at]);
    if (one) path.unshift(one.key);
  }
  return path;
}

/** @param {string} before @param {string[]} path @param {GraphText} text @param {Known} known @returns {Meant | null} */
function inMapping(before, path, text, known) {
  const braces = /^(\s*)(?:-\s+)?([\w-]+):\s*\{(.*)$/.exec(before);
  const own = braces ? [...path, braces[2]] : path;
  const inner = braces ? /** @type {string} */ (/(?:^|,)([^,]*)$/.exec(braces[3])?.[1]).trimStart() : before.trimStart();
  const pair = /^([\w-]+):\s+\[?(?:[^\]]*,\s*)?["']?([\w.-]*)$/.exec(inner);
  const where = own.slice(own.lastIndexOf("graph") + 1);
  if (pair) return value(before, pair[1], pair[2], where, text, known);
  const item = /^-\s+["']?([\w.-]*)$/.exec(inner);
  if (item && own.length) return value(before, /** @type {string} */ (own.at(-1)), item[1], where.slice(0, -1), text, known);
  const key = /^["']?([\w-]*)$/.exec(inner);
  if (!key) return null;
  return keys(before, key[1], where, text, known, braces?.[3] ?? null);
}

/** @param {string} before @param {string} word @param {string[]} path @param {GraphText} text @param {Known} known @param {string | null} inside  What stands in the braces. @returns {Meant | null} */
function keys(before, word, path, text, known, inside) {
  /** @param {Choice[]} choices @param {string[]} taken */
  const offer = (choices, taken) => words(before, word, choices.filter((one) => !taken.includes(one.text) || one.text === word).map((one) => ({ ...one, put: `${one.text}: ` })), false);
  if (!path.length) return offer(said(known, "graph"), text.top.map((one) => one.key));
  if (path[0] === "nodes" && path.length === 2) {
    const node = text.node(path[1]), kind = node ? known.kinds.find((one) => one.name === text.kind(node)) : null;
    const taken = node ? entries(text.lines, node.first + 1, node.last).map((one) => one.key) : [];
    if (inside !== null) taken.push(...[...inside.matchAll(/([\w-]+)\s*:/g)].map((one) => one[1]));
    const fields = [...(kind?.fields ?? []), ...known.common].map((one) => ({ text: one.name, about: one.summary.replaceAll("`", "") }));
    return offer([{ text: "kind", about: "What the node does." }, ...fields], taken);
  }
  if (path[0] === "state" && path.length === 1) return offer(said(known, "state"), []);
  if (path[0] === "state" && path[1] === "fields" && path.length === 3) return offer(said(known, "field"), []);
  if (path[0] === "limits" && path.length === 1) return offer(said(known, "limits"), []);
  return null;
}

/** @param {string} before @param {string} key @param {string} word @param {string[]} path @param {GraphText} text @param {Known} known @returns {Meant | null} */
function value(before, key, word, path, text, known) {
  const fields = fieldsOf(text, known);
  if (!path.length && (key === "input" || key === "output")) return words(before, word, fields, true);
  if (path[0] === "state") {
    if (key === "reducer") return words(before, word, said(known, "reducers"), true);
    return key === "type" || (path[1] === "fields" && path.length === 2) ? words(before, word, said(known, "types"), false) : null;
  }
  if (path[0] === "limits" && key !== "visits") return null;
  if (path[0] !== "nodes" || path.length < 2) return null;
  if (key === "kind") return words(before, word, known.kinds.map((one) => ({ text: one.name, about: one.summary.replaceAll("`", "") })), true);
  if (key === "tools") return words(before, word, known.tools.map((one) => ({ text: one.name, about: one.description })), true);
  if (key === "model") return words(before, word, known.models.map(plain), true);
  if (key === "join") return words(before, word, known.joins.map(plain), false);
  if (key === "reads" || key === "writes") return words(before, word, fields, true);
  const node = text.node(path[1]), field = node ? known.kinds.find((one) => one.name === text.kind(node))?.fields.concat(known.common).find((one) => one.name === key) : null;
  if (!field) return null;
  const literals = [...field.type.matchAll(/'([\w-]+)'/g)].map((one) => one[1]);
  if (literals.length) return words(before, word, literals.map(plain), true);
  if (/\bbool\b/.test(field.type)) return words(before, word, ["true", "false"].map(plain), true);
  return field.port ? words(before, word, fields, true) : null;
}

/** @param {string} before @param {GraphText} text @param {Known} known @param {boolean} inline @returns {Meant | null} */
function inEdges(before, text, known, inline) {
  const said = inline ? before.replace(/^\s*edges:\s*["']?/, "") : before.replace(/^\s*-\s*["']?/, "");
  if (said.includes("#")) return null;
  const nodes = text.nodes.map((one) => ({ text: one.key, about: text.kind(one) }));
  const label = /:\s*(?:([\p{L}\p{M}\p{N}_-]+)\s*,\s*)*([\p{L}\p{M}\p{N}_-]*)$/u.exec(said), each = /:.*\beach\s+([\p{L}\p{M}\p{N}_]*)$/u.exec(said);
  if (each) return words(before, each[1], fieldsOf(text, known), true);
  if (label) {
    const groups = statement(said.slice(0, said.indexOf(":")).trim(), 0)?.groups, sources = groups?.at(-2) ?? [];
    const outcomes = [...new Set(sources.flatMap((one) => known.outcomes[one] ?? []))];
    return words(before, label[2], [...outcomes.map((one) => ({ text: one, about: `of ${sources.join(", ")}` })), ...FAILURES.map((one) => ({ text: one, about: "a failure" })), { text: "each", about: "a branch for each item of a field", put: "each " }], true);
  }
  const name = /(?:^|[\s,>])([\p{L}_][\p{L}\p{M}\p{N}_-]*)?$/u.exec(said);
  if (!name || /[\p{L}_]\s+$/u.test(said)) return null;
  const target = said.includes("->");
  const more = target ? { text: "END", about: "the run is over" } : { text: "START", about: "the run begins" };
  return words(before, name[1] ?? "", [...nodes, more], true);
}

/** @param {GraphText} text @param {Known} known @returns {Choice[]} */
function fieldsOf(text, known) {
  const own = text.fields;
  return (own.length ? own : known.fields).map((one) => ({ text: one.key, about: one.type }));
}

/** The words of a place. @param {Known} known @param {string} place @returns {Choice[]} */
const said = (known, place) => Object.entries(known.words[place] ?? {}).map(([text, about]) => ({ text, about }));

/** @param {string} text @returns {Choice} */
const plain = (text) => ({ text, about: "" });

/** @param {string} before @param {string} word @param {Choice[]} choices @param {boolean} sure @returns {Meant | null} */
function words(before, word, choices, sure) {
  const low = word.toLowerCase();
  const fit = choices.filter((one) => one.text.toLowerCase().includes(low))
    .sort((one, other) => Number(!one.text.toLowerCase().startsWith(low)) - Number(!other.text.toLowerCase().startsWith(low)));
  return fit.length ? { from: before.length - word.length, choices: fit, sure } : null;
}
