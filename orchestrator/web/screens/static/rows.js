// @ts-check
// Tables of rows that follow the store: no row moves while the pointer or the focus is on its table.

/** @param {ParentNode} place @returns {HTMLTableRowElement[]} */
export const rowsOf = (place) => [...place.querySelectorAll(".list tbody tr")].filter((row) => row instanceof HTMLTableRowElement);

/** The row that has the focus. */
export const rowAt = () => document.activeElement?.closest(".list tbody tr") ?? null;

/** Give the focus to the next row, or to one before. @param {number} by */
export function move(by) {
  const all = rowsOf(document);
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

/** Put the row of a newer page in place of one. What had the focus keeps it. @param {HTMLElement} now @param {HTMLElement} then */
function replace(now, then) {
  const held = now.contains(document.activeElement) ? document.activeElement : null;
  const at = held === null || held === now ? -1 : [...now.querySelectorAll("a, button")].indexOf(held);
  now.replaceWith(then);
  if (!held) return;
  const next = at < 0 ? then : then.querySelectorAll("a, button")[at] ?? then;
  if (next instanceof HTMLElement) next.focus();
}

/** Show that a row is in the list no more. @param {HTMLTableRowElement} row */
function leave(row) {
  row.classList.add("gone");
  for (const button of row.querySelectorAll("button")) button.disabled = true;
}

/** Sections of a screen, each with one table, that are kept as the newest page has them. */
export class FollowedRows {
  /**
   * @param {string[]} sections ids
   * @param {{same?: (now: HTMLTableRowElement, then: HTMLTableRowElement) => void, taken?: () => void, still?: string}} [how]
   *   `same`: what to do with a row that did not change. `taken`: what to do after each update. `still`: where the pointer
   *   keeps everything in place.
   */
  constructor(sections, { same = () => {}, taken = () => {}, still = ".list tbody" } = {}) {
    this.sections = sections;
    this.same = same;
    this.taken = taken;
    this.pointed = false; // whether the pointer is where nothing may move
    /** @type {Document | null} */
    this.waits = null; // a page of which not all is shown yet
    document.addEventListener("pointerover", (event) => {
      const was = this.pointed;
      this.pointed = event.target instanceof Element && event.target.closest(still) !== null;
      if (was && !this.pointed) this.settle();
    });
    document.documentElement.addEventListener("pointerleave", () => { this.pointed = false; this.settle(); });
    document.addEventListener("focusout", () => setTimeout(() => this.settle()));
  }

  /** Show a newer page. @param {Document} page */
  take(page) {
    this.waits = null;
    for (const name of this.sections) {
      const [now, then] = [document.getElementById(name), page.getElementById(name)];
      if (now && then) this.update(now, then, page);
    }
    this.taken();
  }

  /** Show what had to wait until neither pointer nor focus are on a table. */
  settle() {
    if (this.waits) this.take(this.waits);
  }

  /** Bring a section up to date. @param {HTMLElement} section @param {HTMLElement} newer @param {Document} page */
  update(section, newer, page) {
    const [body, next] = [section.querySelector("tbody"), newer.querySelector("tbody")];
    const still = this.pointed || section.contains(document.activeElement);
    if (still) this.waits = page;
    if (!body || !next) {
      if (!still) section.replaceChildren(...[...newer.childNodes].map((one) => document.importNode(one, true)));
      else if (body) for (const row of rowsOf(section)) leave(row);
      return;
    }
    const order = rowsOf(newer).map((then) => this.row(then));
    if (!still) {
      body.replaceChildren(...order);
      return;
    }
    for (const row of rowsOf(section)) if (!order.includes(row)) leave(row);
    body.append(...order.filter((row) => !row.isConnected));
  }

  /** The row that is to be shown for one of a newer page. @param {HTMLTableRowElement} then */
  row(then) {
    const now = document.getElementById(then.id);
    const next = document.importNode(then, true);
    if (!(now instanceof HTMLTableRowElement)) return next;
    now.classList.remove("gone");
    if (now.dataset.version !== then.dataset.version || now.querySelector(":disabled")) {
      replace(now, next);
      return next;
    }
    this.same(now, next);
    return now;
  }
}
