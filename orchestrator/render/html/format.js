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

// Characters that nobody sees, or that turn the direction of what is read, are shown as their escapes.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2028\u2029\u2060-\u206f\ufeff]/g;
const visible = (text) =>
  String(text).replace(/\r\n?/g, "\n").replace(HIDDEN, (found) => "\\u" + found.codePointAt(0).toString(16).padStart(4, "0"));

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
