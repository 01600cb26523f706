// The page: its runs, its address, its keys.

const KEYS = [
  ["↓ ↑ or j k", "next, previous step"], ["← →", "next, previous record"], ["Home End", "begin, end"], ["space", "play, pause"],
  ["1 – 5", "step, state, model, tools, run"], ["/", "search; Enter goes to the next found"], ["Esc", "end the search"], ["?", "this"],
];

const runs = JSON.parse(document.getElementById("data").textContent);
let quiet = false;
const views = runs.map((data, at) => new View("ab"[at], data, moved));
let active = views[0];
const together = document.getElementById("together");

function moved(view) {
  active = view;
  if (quiet) return;
  if (views.length > 1 && together.checked) {
    quiet = true;
    for (const other of views) {
      if (other === view) continue;
      other.show(view.tab, true);
      follow(other, view);
    }
    quiet = false;
  }
  const parts = views.map((one, at) => {
    const name = at ? "b." : "";
    const words = [];
    if (one.index >= 0 && one.data.seqOf(one.index) === one.seq) words.push(name + "step=" + (one.index + 1));
    else words.push(name + "seq=" + one.seq);
    if (!at && one.tab !== "step") words.push("tab=" + one.tab);
    return words.join("&");
  });
  const address = "#" + parts.join("&");
  if (address === location.hash) return;
  try { history.replaceState(null, "", address); } catch { /* some browsers count; the page works without */ }
}

// The same step of another run, or one about as far.
function follow(view, other) {
  const name = other.index < 0 ? null : other.data.steps[other.index].name;
  view.choose(view.data.named.get(name) ?? Math.min(other.index, view.data.steps.length - 1), true);
}

// #step=12&tab=state, or #seq=40; of the second run b.step and b.seq.
function arrive() {
  const words = new URLSearchParams(location.hash.slice(1));
  quiet = true;
  views.forEach((view, at) => {
    const name = at ? "b." : "";
    view.show(words.get("tab") ?? "step", true);
    const step = Number(words.get(name + "step")), seq = Number(words.get(name + "seq"));
    if (step >= 1 && step <= view.data.steps.length) view.choose(step - 1, true);
    else if (seq >= 1) view.go(seq, null, true);
    else if (at && together.checked && location.hash) follow(view, views[0]);
    else view.go(view.data.head, view.data.open(), true);
  });
  quiet = false;
}

const help = make("dialog", { "aria-label": "Keys" }, make("h2", {}, "Keys"),
  make("dl", { class: "keys" }, KEYS.map(([key, does]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, does)]).flat()),
  make("form", { method: "dialog" }, make("button", {}, "Close")));
document.body.append(help);
help.querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); help.close(); });

document.addEventListener("keydown", (event) => {
  if (!active || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const target = event.target;
  const search = active.at("search");
  if (target.type === "search") {
    if (event.key === "Escape") { target.value = ""; active.search(""); target.blur(); event.preventDefault(); }
    else if (event.key === "Enter") { active.step(event.shiftKey ? -1 : 1); event.preventDefault(); }
    return;
  }
  if (target.matches("input[type=radio], input[type=text], textarea")) return;
  const onButton = target.matches("button, summary, a, input[type=checkbox]");
  const inText = target.matches("pre, .panel, .diff, .canvas");
  const acts = {
    j: () => active.step(1), k: () => active.step(-1),
    ArrowDown: inText ? null : () => active.step(1), ArrowUp: inText ? null : () => active.step(-1),
    ArrowRight: inText ? null : () => active.go(active.seq + 1), ArrowLeft: inText ? null : () => active.go(active.seq - 1),
    Home: inText ? null : () => active.go(1), End: inText ? null : () => active.go(active.data.head),
    PageDown: inText ? null : () => active.step(10), PageUp: inText ? null : () => active.step(-10),
    " ": onButton || inText ? null : () => active.play(),
    "/": () => search.focus(),
    "?": () => help.showModal(),
    1: () => active.show("step"), 2: () => active.show("state"), 3: () => active.show("model"), 4: () => active.show("tools"), 5: () => active.show("run"),
  };
  const act = acts[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

document.addEventListener("pointerdown", (event) => {
  const found = views.find((view) => document.getElementById(view.prefix + "-run").contains(event.target));
  if (found) active = found;
}, true);
window.addEventListener("hashchange", arrive);
if (views.length) arrive();
document.documentElement.dataset.ready = "yes";
