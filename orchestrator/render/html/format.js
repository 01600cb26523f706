// Making elements and texts. What strangers said becomes text nodes, never markup.

const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
};

// Characters that cannot be seen, or that turn the direction of what is read, are shown as their escapes; but not
// joiners and variation selectors where they belong to a word or an emoji. The same as orchestrator/visible.py.
const JOINING = ["Arabic", "Syriac", "Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala", "Myanmar", "Khmer", "Mongolian"].map((name) => "\\p{Script=" + name + "}").join("");
const HIDDEN = new RegExp(
  "((?<=[\\p{Extended_Pictographic}\\p{So}\\p{Sm}])[\\ufe0e\\ufe0f]|(?<=[#*0-9])\\ufe0f(?=\\u20e3)" +
  "|(?<=[\\p{Extended_Pictographic}\\p{Emoji_Modifier}\\ufe0f])\\u200d(?=\\p{Extended_Pictographic})" +
  "|(?<=[" + JOINING + "])[\\u200c\\u200d](?=[" + JOINING + "])|[\\n\\t])" +
  "|[\\p{Default_Ignorable_Code_Point}\\p{C}\\p{Zl}\\p{Zp}\\u2800\\ufffc\\u{13441}\\u{13442}\\u{16fe4}\\u{1d159}]", "gu");
const escaped = (code) => (code < 0x10000 ? "\\u" + code.toString(16).padStart(4, "0") : "\\U" + code.toString(16).padStart(8, "0"));
const visible = (text) =>
  String(text).replace(/\r\n?/g, "\n").replace(HIDDEN, (found, meant) => meant ?? escaped(found.codePointAt(0)));

const pretty = (value) => visible(typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "");

const lasting = (seconds) => {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 0.0005) return "0 ms";
  if (seconds < 1) return Math.round(seconds * 1000) + " ms";
  if (seconds < 60) return seconds.toFixed(seconds < 10 ? 2 : 1) + " s";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min " + Math.round(seconds % 60) + " s";
  if (seconds < 86400) return Math.floor(seconds / 3600) + " h " + Math.round((seconds % 3600) / 60) + " min";
  return Math.floor(seconds / 86400) + " d " + Math.round((seconds % 86400) / 3600) + " h";
};

const number = (value) => (value ?? 0).toLocaleString("en");
const money = (value) => (value ? (value < 0.01 ? value.toFixed(6) : value.toFixed(4)) : "0");
const tokens = (usage) => (usage ? (usage.in ?? 0) + (usage.out ?? 0) : 0);

const block = (value, kind = "") => make("pre", { class: "data " + kind, tabindex: 0 }, pretty(value));
