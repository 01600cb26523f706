// A page of one run or of two beside each other: its address, its keys, and what keeps the runs together.
import { read, written } from "./address.js";
import { keysDialog, press } from "./keys.js";
import { RunView } from "./view.js";

/** @import { Source } from "./source.js" */
/** @import { RunDocument } from "./types.js" */

const AGAIN = 30; // milliseconds; what a run does in between is shown together

export class RunPage {
  /** @param {RunView[]} views @param {[string, string][]} keys  Keys beside those of every page, for the list of them. */
  constructor(views, keys) {
    this.views = views;
    this.active = views[0];
    this.quiet = false;
    this.together = /** @type {HTMLInputElement | null} */ (document.getElementById("together"));
    const help = keysDialog(keys);
    document.body.append(help);
    document.addEventListener("keydown", (event) => { if (this.active) press(event, this.active, help); });
    const enter = (/** @type {Event} */ event) => { this.active = views.find((view) => view.at("run").contains(/** @type {Node} */ (event.target))) ?? this.active; };
    document.addEventListener("pointerdown", enter, true);
    document.addEventListener("focusin", enter, true);
    window.addEventListener("hashchange", () => this.arrive());
    for (const link of document.querySelectorAll("a.look")) link.addEventListener("click", () => this.arrive(link.getAttribute("href") ?? ""));
  }

  /** @param {RunView} view */
  moved(view) {
    this.active = view;
    if (this.quiet) return;
    if (this.together?.checked) this.alone(() => { for (const other of this.views) if (other !== view) { other.show(view.tab, true); this.join(other, view); } });
    const address = "#" + this.views.map((one, at) => written(one.visit, at ? "b." : "")).join("&");
    if (address === location.hash) return;
    try { history.replaceState(null, "", address); } catch { /* some browsers count; the page works without */ }
  }

  /** The same step of another run, or one about as far. @param {RunView} view @param {RunView} other */
  join(view, other) {
    const name = other.data.names[other.index];
    view.choose(view.data.named.get(name) ?? Math.min(other.index, view.data.steps.length - 1), true);
  }

  /** Go to what the address names. @param {string} address */
  arrive(address = location.hash) {
    this.alone(() => this.views.forEach((view, at) => {
      const visit = read(address, at ? "b." : "");
      view.tab = visit.tab;
      view.talk.look(visit.view, true);
      view.edge = visit.edge !== null && visit.edge in view.data.run.edges ? visit.edge : null;
      view.filter(visit.choice, true);
      const late = view.data.behind && (visit.step !== null ? visit.step > view.data.steps.length : (visit.seq ?? 0) > view.data.head);
      if (visit.step !== null && visit.step <= view.data.steps.length) view.choose(visit.step - 1, true);
      else if (visit.seq !== null && !late) view.go(visit.seq, null, true);
      else if (at && this.together?.checked && address) this.join(view, this.views[0]);
      else view.go(view.data.head, view.data.foremost(), true);
      if (visit.step !== null || visit.seq !== null) view.follow(false);
      else if (visit.edge === null) view.seek(visit.choice.text);
      if (late) view.wait(visit);
      else view.goOn.arrive(view.index, visit.fork);
    }));
    if (/(^#|&)(b\.)?(step|seq)=/.test(address)) this.views[0].list.bringIntoView();
  }

  /** Do something that does not change the address. @param {() => void} act */
  alone(act) {
    this.quiet = true;
    act();
    this.quiet = false;
  }
}

/**
 * Show runs, and show what becomes of those that go on.
 * @param {Source[]} sources
 * @param {(run: RunDocument) => void} shown  Called with each run as it is shown at first, and whenever it has changed.
 * @param {[string, string][]} [keys]  Keys that the page has beside its own, for the list of them.
 * @returns {Promise<RunPage>}
 */
export async function openPage(sources, shown = () => undefined, keys = []) {
  const runs = await Promise.all(sources.map((source) => source.run()));
  /** @type {RunPage} */
  let page;
  const views = sources.map((source, at) => new RunView("ab"[at], runs[at], source, (view) => page.moved(view)));
  page = new RunPage(views, keys);
  page.arrive();
  views.forEach((view) => { shown(view.data.run); watch(view, shown); });
  document.documentElement.dataset.ready = "yes";
  return page;
}

/** Take what became of a run when it has grown, one time after the other. @param {RunView} view @param {(run: RunDocument) => void} shown */
function watch(view, shown) {
  let waits = false, asks = false;
  const take = async () => {
    if (asks) { waits = true; return; }
    asks = true;
    await view.tell(async () => {
      const change = await view.source.change();
      if (change) { view.update(change); shown(view.data.run); }
    });
    view.offer(); // what can be done may be less
    asks = false;
    if (waits) { waits = false; setTimeout(take, AGAIN); }
  };
  view.source.subscribe(() => { void take(); });
}
