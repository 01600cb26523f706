// @ts-check
// Where the parts of a graph file stand in its text, and the changes that a person makes by choosing instead of typing.
// It reads lines and indentation only. Where a text has another form, it finds nothing and changes nothing; what the
// text means is the server's to say.

/** @typedef {{key: string, first: number, last: number, indent: number}} Entry  Lines from 0. */
/** @typedef {{source: string, target: string, outcome: string | null, each: string | null, line: number, at: number}} Edge  `at`: which arrow of its statement. */
/**
 * A statement of the arrow text.
 * @typedef {object} Statement
 * @property {number} line  From 0.
 * @property {string[][]} groups  Names between arrows.
 * @property {string} label  What stands behind the colon.
 * @property {string} comment
 */

const KEY = /^( *)(?:"([^"]*)"|'([^']*)'|([^\s#:'"{}[\],&*!|>%@`-][^:#]*?|-?\w[^:#]*?))\s*:(?=\s|$)/;
const NAME = /^[\p{L}_](?:[\p{L}\p{M}\p{N}_]|-(?!>))*$/u;
/** What failures are called in edges. */
export const FAILURES = ["error", "timeout", "exhausted"];

/** @param {string} line */
const blank = (line) => /^\s*(#|$)/.test(line);
/** @param {string} line */
export const indentOf = (line) => /^ */.exec(line)?.[0].length ?? 0;

/**
 * The keys of one indentation in some lines.
 * @param {string[]} lines
 * @param {number} first
 * @param {number} last
 * @param {number | null} [indent]  null: that of the first line.
 * @returns {Entry[]}
 */
export function entries(lines, first, last, indent = null) {
  /** @type {Entry[]} */
  const found = [];
  for (let at = first; at <= last; at++) {
    if (blank(lines[at])) continue;
    indent ??= indentOf(lines[at]);
    const here = indentOf(lines[at]);
    if (here > indent) continue;
    if (here < indent) break;
    const match = KEY.exec(lines[at]);
    if (match) found.push({ key: match[2] ?? match[3] ?? match[4], first: at, last, indent });
  }
  for (const [number, one] of found.entries()) {
    one.last = (found[number + 1]?.first ?? last + 1) - 1;
    for (let at = one.first + 1; at <= one.last; at++) if (!blank(lines[at]) && indentOf(lines[at]) < one.indent) { one.last = at - 1; break; }
    while (one.last > one.first && blank(lines[one.last])) one.last--;
  }
  return found;
}

/** What follows a key on its line. @param {string} line */
export const valueOf = (line) => line.slice((KEY.exec(line)?.[0] ?? "").length).trim();

/** A graph file, or a graph inside of one. */
export class GraphText {
  /** @param {string[]} lines @param {number} [first] @param {number} [last] @param {number | null} [indent] */
  constructor(lines, first = 0, last = lines.length - 1, indent = null) {
    this.lines = lines;
    this.top = entries(lines, first, last, indent);
  }

  /** @param {string} text */
  static of(text) { return new GraphText(text.split("\n")); }

  /** @param {string} key */
  section(key) { return this.top.find((one) => one.key === key) ?? null; }

  /** The entries below a key. @param {string} key @returns {Entry[]} */
  below(key) {
    const found = this.section(key);
    return found && found.last > found.first ? entries(this.lines, found.first + 1, found.last) : [];
  }

  get nodes() { return this.below("nodes"); }

  /** The fields of the state that are written in the text. @returns {{key: string, type: string}[]} */
  get fields() {
    const state = this.section("state");
    if (!state || state.last === state.first) return [];
    const fields = entries(this.lines, state.first + 1, state.last).find((one) => one.key === "fields");
    if (!fields || fields.last === fields.first) return [];
    return entries(this.lines, fields.first + 1, fields.last).map((one) => {
      const whole = this.lines.slice(one.first, one.last + 1).join(" "), value = valueOf(this.lines[one.first]);
      const type = value && !value.startsWith("{") ? value : /\btype:\s*(?:"([^"]*)"|'([^']*)'|([^,}#]+))/.exec(whole)?.slice(1).find(Boolean) ?? "any";
      return { key: one.key, type: type.trim().replace(/^(["'])(.*)\1$/, "$2") };
    });
  }

  /** The fields that a run is given. @returns {string[]} */
  get input() { return this.names("input"); }

  /** The names that a key has as its value. @param {string} key */
  names(key) {
    const found = this.section(key);
    if (!found) return [];
    const text = this.lines.slice(found.first, found.last + 1).join("\n");
    return [...text.slice(text.indexOf(":") + 1).matchAll(/[\p{L}_][\p{L}\p{M}\p{N}_]*/gu)].map(([name]) => name);
  }

  /** What a node is written as. @param {string} name */
  node(name) { return this.nodes.find((one) => one.key === name) ?? null; }

  /** The kind that the text gives a node. @param {Entry} node */
  kind(node) {
    const text = this.lines.slice(node.first, node.last + 1).join("\n");
    return /(?:^|[\s{,])kind:\s*["']?([\w-]+)/.exec(text)?.[1] ?? "";
  }

  /** The entry of a node, also of one in graphs inside. @param {string[]} path @returns {Entry | null} */
  find(path) {
    const node = this.node(path[0]);
    if (!node || path.length === 1) return node;
    const graph = node.last > node.first ? entries(this.lines, node.first + 1, node.last).find((one) => one.key === "graph") : null;
    if (!graph || graph.last === graph.first) return node;
    return new GraphText(this.lines, graph.first + 1, graph.last).find(path.slice(1)) ?? node;
  }

  /** The node, as a path, whose text has a line. @param {number} line @returns {string[]} */
  at(line) {
    const node = this.nodes.find((one) => one.first <= line && line <= one.last);
    if (!node) return [];
    const graph = node.last > node.first ? entries(this.lines, node.first + 1, node.last).find((one) => one.key === "graph") : null;
    const inside = graph && graph.first < line && line <= graph.last ? new GraphText(this.lines, graph.first + 1, graph.last).at(line) : [];
    return [node.key, ...inside];
  }

  // -- edges ----------------------------------------------------------------------------------------------------

  /** The form of the text of edges. @returns {{form: "block" | "line" | "list" | "none", entry: Entry | null}} */
  get shape() {
    const entry = this.section("edges");
    if (!entry) return { form: "none", entry };
    const value = valueOf(this.lines[entry.first]);
    if (/^[|>]/.test(value)) return { form: value.startsWith("|") ? "block" : "none", entry };
    if (value.includes("->")) return { form: entry.last === entry.first ? "line" : "none", entry };
    return { form: value || entry.last === entry.first ? "none" : "list", entry };
  }

  /** @returns {Statement[]} */
  get statements() {
    const { form, entry } = this.shape;
    if (!entry || form === "none") return [];
    const lines = form === "line" ? [entry.first] : Array.from({ length: entry.last - entry.first }, (_, at) => entry.first + 1 + at);
    return lines.flatMap((line) => {
      const text = form === "line" ? valueOf(this.lines[line]) : form === "list" ? this.lines[line].replace(/^\s*-\s*/, "") : this.lines[line];
      const found = statement(text.trim().replace(/^(["'])(.*)\1$/, "$2"), line);
      return found ? [found] : [];
    });
  }

  /** @returns {Edge[]} */
  get edges() { return this.statements.flatMap(edgesOf); }

  /** What leads where from a node: outcome -> target; "" is every other outcome. @param {string} name */
  ways(name) { return this.edges.filter((one) => one.source === name); }

  // -- changes: each gives the whole new text -------------------------------------------------------------------

  /** @param {string[]} lines */
  text(lines) { return lines.join("\n"); }

  /** A name that no node has. @param {string} wish */
  free(wish) {
    const taken = new Set([...this.nodes.map((one) => one.key), "START", "END"]);
    const base = NAME.test(wish) ? wish : "node";
    for (let number = 1; ; number++) {
      const name = number === 1 ? base : `${base}_${number}`;
      if (!taken.has(name)) return name;
    }
  }

  /**
   * Add a node, and edges.
   * @param {string} name
   * @param {string[]} body  Its lines without indentation; one line stands behind the name.
   * @param {Edge | null} on  An edge that is led through it.
   * @param {[string | null, string][]} ways  Outcome (null: any) and where it leads.
   * @returns {string | null}  null: the text has a form that is not changed here.
   */
  add(name, body, on, ways) {
    const nodes = this.section("nodes"), { form } = this.shape;
    if (!nodes || (form !== "block" && form !== "line" && form !== "list" && (on || ways.length))) return null;
    if (valueOf(this.lines[nodes.first]) && !/^#/.test(valueOf(this.lines[nodes.first]))) return null;
    const last = this.nodes.at(-1), indent = " ".repeat(last?.indent ?? nodes.indent + 2);
    const written = body.length === 1 ? [`${indent}${name}: ${body[0]}`] : [`${indent}${name}:`, ...body.map((line) => (line ? `${indent}  ${line}` : ""))];
    const below = last?.last ?? nodes.first;
    /** @type {string[]} */
    const more = ways.map(([outcome, target]) => arrow([[name], [target]], outcome ?? ""));
    const edited = this.edited(on ? (edge) => (same(edge, on) ? [[[edge.source], [name]], edge.label] : null) : null, more);
    if (edited === null) return null;
    const shift = edited.shape.entry && edited.shape.entry.first < below ? edited.lines.length - this.lines.length : 0;
    edited.lines.splice(below + shift + 1, 0, ...written);
    return this.text(edited.lines);
  }

  /**
   * Lead an outcome of a node elsewhere.
   * @param {string} name @param {string | null} outcome  null: every outcome that no edge names. @param {string} target  "": nowhere.
   * @returns {string | null}
   */
  lead(name, outcome, target) {
    const now = this.edges.find((edge) => edge.source === name && edge.outcome === outcome);
    if (!now) return target ? this.edited(null, [arrow([[name], [target]], outcome ?? "")])?.joined ?? null : null;
    return this.edited((edge) => (same(edge, now) ? (target ? [[[edge.source], [target]], edge.label] : []) : null), [])?.joined ?? null;
  }

  /**
   * Lines with other edges.
   * @param {((edge: Edge & {label: string}) => [string[][], string] | [] | null) | null} change  What an edge becomes;
   *   []: nothing; null: it stays.
   * @param {string[]} more  Statements to add.
   */
  edited(change, more) {
    const { form, entry } = this.shape;
    if (!entry || form === "none") return more.length || change ? null : { lines: [...this.lines], joined: this.text(this.lines), shape: this.shape };
    const statements = this.statements;
    const inner = form === "line" ? " ".repeat(entry.indent + 2) : " ".repeat(indentOf(this.lines[statements[0]?.line ?? entry.first] ?? "") || entry.indent + 2);
    /** @param {string} text */
    const put = (text) => (form === "list" ? `${inner}- ${text.includes(" : ") ? `'${text}'` : text}` : inner + text);
    /** @type {Map<number, string[]>} */
    const written = new Map();
    for (const one of statements) {
      const made = change ? rewritten(one, change) : null;
      if (made) written.set(one.line, made);
    }
    const lines = [...this.lines];
    if (form === "line") {
      const old = statements[0] ? written.get(statements[0].line) ?? [valueOf(lines[entry.first])] : [];
      lines.splice(entry.first, entry.last - entry.first + 1, `${" ".repeat(entry.indent)}edges: |`, ...[...old, ...more].map((text) => inner + text));
    } else {
      const place = Math.max(...written.keys(), -1);
      if (place < 0) lines.splice(entry.last + 1, 0, ...more.map(put));
      for (const [line, texts] of [...written].sort(([one], [other]) => other - one)) lines.splice(line, 1, ...[...texts, ...(line === place ? more : [])].map(put));
    }
    return { lines, joined: this.text(lines), shape: this.shape };
  }
}

/** @param {Edge} one @param {Edge} other */
const same = (one, other) => one.line === other.line && one.at === other.at && one.source === other.source && one.target === other.target && one.outcome === other.outcome;

/** @param {string[][]} groups @param {string} label */
const arrow = (groups, label) => groups.map((names) => names.join(", ")).join(" -> ") + (label ? ` : ${label}` : "");

/**
 * One line of arrow text.
 * @param {string} text @param {number} line
 * @returns {Statement | null}  null: there is none, or it cannot be read.
 */
export function statement(text, line) {
  const cut = text.indexOf("#");
  const comment = cut < 0 ? "" : text.slice(cut).trim();
  const said = (cut < 0 ? text : text.slice(0, cut)).trim();
  const colon = said.indexOf(":");
  const label = colon < 0 ? "" : said.slice(colon + 1).trim();
  const groups = (colon < 0 ? said : said.slice(0, colon)).split("->").map((group) => group.split(",").map((name) => name.trim()));
  if (groups.length < 2 || groups.flat().some((name) => name !== "*" && !NAME.test(name))) return null;
  return { line, groups, label, comment };
}

/** The edges of a statement. @param {Statement} one @returns {Edge[]} */
export function edgesOf({ groups, label, line }) {
  const each = /(?:^|\s)each\s+(\w+)\s*$/.exec(label);
  const outcomes = (each ? label.slice(0, each.index) : label).split(",").map((name) => name.trim()).filter(Boolean);
  /** @type {Edge[]} */
  const found = [];
  for (let at = 0; at + 1 < groups.length; at++) {
    const labelled = at + 2 === groups.length;
    for (const source of groups[at]) for (const target of groups[at + 1])
      for (const outcome of labelled && outcomes.length ? outcomes : [null]) found.push({ source, target, outcome, each: labelled ? each?.[1] ?? null : null, line, at });
  }
  return found;
}

/**
 * A statement in which edges are changed, as statements; null: none is.
 * @param {Statement} one
 * @param {(edge: Edge & {label: string}) => [string[][], string] | [] | null} change
 * @returns {string[] | null}
 */
function rewritten(one, change) {
  const { groups, label, comment } = one;
  /** @type {string[]} */
  const made = [];
  let changed = false, from = 0; // groups that are still to be written
  for (let at = 0; at + 1 < groups.length; at++) {
    const last = at + 2 === groups.length, own = last ? label : "";
    const edges = edgesOf({ ...one, groups: [groups[at], groups[at + 1]], label: own }).map((edge) => ({ ...edge, at, label: labelOf(edge) }));
    const changes = edges.map(change);
    if (changes.every((each) => each === null)) continue;
    changed = true;
    if (at > from) made.push(arrow(groups.slice(from, at + 1), ""));
    for (const [number, edge] of edges.entries()) {
      const become = changes[number];
      if (become === null) made.push(arrow([[edge.source], [edge.target]], edge.label));
      else if (become.length) made.push(arrow(become[0], become[1]));
    }
    from = at + 1;
  }
  if (!changed) return null;
  if (from + 1 < groups.length) made.push(arrow(groups.slice(from), label));
  if (comment && made.length) made[0] += `  ${comment}`;
  return made;
}

/** @param {Edge} edge */
export const labelOf = (edge) => [edge.outcome, edge.each ? `each ${edge.each}` : null].filter(Boolean).join(" ");
