// @ts-check
// The text as it was left, in the browser, one for each thing that is edited.

const PREFIX = "compose:";
const MOST = 12; // drafts
const LONGEST = 400_000; // characters of one

/** @typedef {{text: string, from: string, at: number}} Draft  `from`: what the editor began with. */

export class Drafts {
  /** @param {string} name  What is edited. */
  constructor(name) { this.key = PREFIX + name; }

  /** @returns {Draft | null} */
  read() {
    try {
      const found = JSON.parse(localStorage.getItem(this.key) ?? "null");
      return typeof found?.text === "string" && typeof found.from === "string" ? found : null;
    } catch { return null; }
  }

  /** @param {string} text @param {string} from @returns {boolean} whether it is kept */
  write(text, from) {
    try {
      if (text === from) localStorage.removeItem(this.key);
      else if (text.length > LONGEST) return false;
      else localStorage.setItem(this.key, JSON.stringify({ text, from, at: Date.now() }));
      this.prune();
      return true;
    } catch { return false; } // the browser allows none, or has no room
  }

  drop() {
    try { localStorage.removeItem(this.key); } catch { /* there is none */ }
  }

  /** Forget the oldest of too many. */
  prune() {
    const all = Object.keys(localStorage).filter((one) => one.startsWith(PREFIX));
    if (all.length <= MOST) return;
    /** @param {string} key */
    const age = (key) => { try { return JSON.parse(localStorage.getItem(key) ?? "{}").at ?? 0; } catch { return 0; } };
    for (const key of all.sort((one, other) => age(one) - age(other)).slice(0, all.length - MOST)) if (key !== this.key) localStorage.removeItem(key);
  }
}
