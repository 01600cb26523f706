// @ts-check
// The parts of a line of a graph file, for colours. Linear in the length of the line, and never wrong by more than a
// colour: what the text means is the server's to say.

/**
 * How the lines before leave a line.
 * @typedef {object} State
 * @property {number} block  Spaces before the key of a block text (`|`, `>`) that goes on; -1: none does.
 * @property {boolean} arrows  Whether that block is the text of edges.
 * @property {"" | "'" | '"'} quote  The mark of a quoted text that goes on.
 */

/** @typedef {[text: string, kind: string]} Token  Without a kind it has the colour of the text. */

/** @type {State} */
export const BEGIN = Object.freeze({ block: -1, arrows: false, quote: "" });
const LONGEST = 4000; // characters of a line that has colours

const SPACE = /^[ \t]*/;
const KEY = /[A-Za-z_$][\w$-]*(?=[ \t]*:(?:[ \t]|$))/y;
const WORD = /[^\s#,:{}[\]'"&*|>!%@`-][^\s,:{}[\]'"]*/y;
const NUMBER = /^[+-]?(?:\d[\d_]*\.?\d*(?:[eE][+-]?\d+)?|\.\d+)$/;
const CONSTANT = /^(?:true|false|null|yes|no|on|off|~)$/i;
const SLOT = /\{[A-Za-z_]\w*\}/g;
/** Characters that cannot be seen, or that turn what is read. */
export const HIDDEN = /[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\u{e0000}-\u{e0fff}\u0000-\u0008\u000b-\u001f\u007f-\u009f]/u;
const HIDDEN_PARTS = new RegExp(`(${HIDDEN.source}+)`, "u");

/** @param {State} one @param {State} other */
export const alike = (one, other) => one.block === other.block && one.arrows === other.arrows && one.quote === other.quote;

/**
 * @param {string} line
 * @param {State} state
 * @returns {{tokens: Token[], next: State}}
 */
export function tokensOf(line, state) {
  if (line.length > LONGEST) return { tokens: [[line, ""]], next: BEGIN };
  const indent = /** @type {RegExpExecArray} */ (SPACE.exec(line))[0].length;
  if (state.block >= 0 && (indent > state.block || line.trim() === "")) {
    return { tokens: marked(state.arrows ? arrowTokens(line) : textTokens(line, "text")), next: state };
  }
  const reader = new Reader(line, indent, state.quote);
  return { tokens: marked(reader.read()), next: reader.next };
}

class Reader {
  /** @param {string} line @param {number} indent @param {State["quote"]} quote */
  constructor(line, indent, quote) {
    this.line = line;
    this.indent = indent;
    this.at = 0;
    this.quote = quote;
    /** @type {Token[]} */
    this.tokens = [];
    this.key = "";
    this.first = "";
    /** @type {State} */
    this.next = BEGIN;
  }

  /** @param {number} end @param {string} kind */
  take(end, kind) {
    const text = this.line.slice(this.at, end);
    this.at = end;
    if (kind === "text") this.tokens.push(...textTokens(text, kind));
    else if (text) this.tokens.push([text, kind]);
  }

  /** @param {RegExp} pattern */
  match(pattern) {
    pattern.lastIndex = this.at;
    return pattern.exec(this.line)?.[0] ?? "";
  }

  read() {
    const { line } = this;
    if (this.quote) this.quoted(0);
    while (this.at < line.length) this.one(line[this.at]);
    if (this.quote) this.next = { ...BEGIN, quote: this.quote };
    return this.tokens;
  }

  /** @param {string} sign */
  one(sign) {
    const { line, at } = this;
    if (sign === " " || sign === "\t") return this.take(at + this.match(/[ \t]+/y).length, "");
    if (sign === "#" && (at === 0 || /\s/.test(line[at - 1]))) return this.take(line.length, "comment");
    if (sign === '"' || sign === "'") { this.quote = sign; return this.quoted(1); }
    const key = this.match(KEY);
    if (key) {
      this.key = key;
      this.first ||= key;
      return this.take(at + key.length, "key");
    }
    if (this.key && (sign === "|" || sign === ">") && /^[|>][-+\d]*[ \t]*(#.*)?$/.test(line.slice(at))) {
      this.next = { block: this.indent, arrows: this.key === "edges", quote: "" };
      return this.take(at + 1, "mark");
    }
    if (line.startsWith("->", at)) return this.take(at + 2, "arrow");
    if ((sign === "&" || sign === "*") && /\w/.test(line[at + 1] ?? "")) return this.take(at + 1 + (/^\w+/.exec(line.slice(at + 1, at + 200))?.[0].length ?? 0), "anchor");
    const word = this.match(WORD);
    if (!word) return this.take(at + 1, "mark");
    return this.word(word);
  }

  /** @param {string} word */
  word(word) {
    const end = this.at + word.length;
    if (this.first === "edges" || this.line.includes("->")) return this.take(end, nameKind(word));
    if (this.key === "kind") return this.take(end, "kind");
    if (NUMBER.test(word)) return this.take(end, "number");
    if (CONSTANT.test(word)) return this.take(end, "constant");
    return this.take(end, this.key ? "plain" : "");
  }

  /** Take a quoted text from its mark, or from the begin of the line. @param {number} from */
  quoted(from) {
    const { line, quote } = this;
    let end = this.at + from;
    for (; end < line.length; end++) {
      if (quote === '"' && line[end] === "\\") end++;
      else if (line[end] === quote) {
        if (quote === "'" && line[end + 1] === "'") end++;
        else break;
      }
    }
    if (end < line.length) this.quote = "";
    this.take(Math.min(end + 1, line.length), "text");
  }
}

/** @param {string} name */
const nameKind = (name) => (name === "START" || name === "END" || name === "*" ? "reserved" : "name");

/** Edges. @param {string} line @returns {Token[]} */
function arrowTokens(line) {
  /** @type {Token[]} */
  const found = [];
  let label = false;
  for (const [part] of line.matchAll(/#.*|->|[\p{L}_](?:[\p{L}\p{M}\p{N}_]|-(?!>))*|\s+|./gu)) {
    if (part[0] === "#") found.push([part, "comment"]);
    else if (part === "->") found.push([part, "arrow"]);
    else if (part === ":") { label = true; found.push([part, "mark"]); }
    else if (/^[\p{L}_*]/u.test(part)) found.push([part, label ? (part === "each" ? "key" : "outcome") : nameKind(part)]);
    else found.push([part, part.trim() ? "mark" : ""]);
  }
  return found;
}

/** A text, with its places for fields. @param {string} text @param {string} kind @returns {Token[]} */
function textTokens(text, kind) {
  /** @type {Token[]} */
  const found = [];
  let at = 0;
  for (const one of text.matchAll(SLOT)) {
    if (one.index > at) found.push([text.slice(at, one.index), kind]);
    found.push([one[0], "slot"]);
    at = one.index + one[0].length;
  }
  if (at < text.length) found.push([text.slice(at), kind]);
  return found;
}

/** Parts that cannot be seen have a mark of their own. @param {Token[]} tokens @returns {Token[]} */
function marked(tokens) {
  if (!tokens.some(([text]) => HIDDEN.test(text))) return tokens;
  return tokens.flatMap(([text, kind]) => text.split(HIDDEN_PARTS).filter(Boolean).map((part) => /** @type {Token} */ ([part, HIDDEN.test(part) ? "hidden" : kind])));
}
