// What is told of a step: why, state, prompts and replies, calls; and of the run.

class Detail {
  constructor(view, panel) {
    this.view = view;
    this.data = view.data;
    this.panel = panel;
    this.way = "changes";
  }

  show(tab, index) {
    const step = this.data.steps[index];
    const parts = tab === "run" ? this.run() : step ? this[tab](step) : [empty("No step had begun.")];
    this.panel.replaceChildren(...parts.flat().filter(Boolean));
    this.panel.scrollTop = 0;
  }

  // -- step -----------------------------------------------------------------------------------------------------

  step(step) {
    const kind = this.data.kinds[step.part];
    const facts = [
      ["kind", kind], ["branch", step.path], ["attempt", step.attempt],
      ["worked", lasting(step.work)], ["waited", this.waited(step)],
      ["records", step.began + " – " + (step.seq ?? "still open")],
      ["began", "at " + lasting(step.t[0] / 1000) + ", " + new Date(this.data.start * 1000 + step.t[0]).toLocaleString()],
      ["calls", (step.calls ?? []).length || null], ["tokens", this.spent(step.usage)],
    ];
    return [
      make("h2", {}, sign(looksOf(step)), " ", make("span", { class: "data" }, visible(step.node)), " ", make("span", { class: "pill " + looksOf(step) }, (step.outcome ?? step.status) + (step.unasked ? ", " + step.unasked : "") + (step.failed ? ", " + step.failed + (step.failed === 1 ? " call failed" : " calls failed") : "") + (step.cached ? ", from cache" : ""))),
      make("h3", {}, "Why here?"),
      make("p", { class: "said data" }, visible(step.came)),
      step.went ? [make("h3", {}, "And then?"), make("p", { class: "said data" }, visible(step.went))] : null,
      (step.left ?? []).map((edge) => make("p", { class: "not data" }, visible(edge))),
      step.error ? make("p", { class: "bad data" }, visible(step.error)) : null,
      (step.retries ?? []).map(([attempt, error]) => make("p", { class: "bad data" }, "Attempt " + attempt + ": " + visible(error))),
      (step.asked ?? []).map((asked) => this.asked(asked)),
      described(facts),
    ].flat();
  }

  waited(step) {
    const sums = {};
    for (const [why, from, to] of step.waits ?? []) sums[why] = (sums[why] ?? 0) + ((to ?? this.data.span) - from) / 1000;
    return Object.entries(sums).map(([why, seconds]) => lasting(seconds) + " (" + WAITS[why] + ")").join(", ");
  }

  spent(usage) {
    if (!tokens(usage)) return null;
    const cost = usage.cost ? ", cost " + money(usage.cost) : "";
    return number(usage.in) + " in, " + number(usage.out) + " out" + cost + (usage.estimated ? " (estimated)" : "");
  }

  asked(asked) {
    const { answer } = asked;
    const late = answer?.type === "deny" && asked.kind in ENDS;
    const ended = late ? ENDS[asked.kind] : { approve: "approved", deny: "denied" }[answer?.type] ?? (asked.kind === "event" ? "received" : "answered");
    const said = answer ? ended + (asked.by && !late ? " by " + visible(asked.by) : "") + " (record " + asked.answered + ")" : "open";
    return make("div", { class: "message" },
      make("div", { class: "role" }, make("span", {}, (asked.kind in ENDS ? "waits for: " : "question: ") + asked.kind), make("span", {}, said)),
      make("div", { class: "text" }, visible(asked.prompt)),
      asked.payload ? block(asked.payload) : null,
      answer && !late && (answer.args || answer.reason || answer.value !== undefined) ? block(answer.args ?? answer.reason ?? answer.value) : null);
  }

  // -- state ----------------------------------------------------------------------------------------------------

  state(step) {
    const { data } = this;
    const before = data.stateBefore(step.index);
    if (before === null) return [empty("The journal does not hold the state of this step.")];
    const ended = step.status === "done";
    const ways = { changes: "Changes", before: "Before", after: "After" };
    const choose = make("div", { class: "choose", role: "radiogroup", "aria-label": "Which state" },
      Object.entries(ways).map(([way, name]) =>
        make("label", {}, make("input", { type: "radio", name: this.view.prefix + "-way", value: way, checked: way === this.way,
          onchange: () => { this.way = way; this.view.detailAgain(); } }), " " + name)));
    const body = this.way === "before" ? [fields(before)]
      : this.way === "after" ? [fields(ended ? data.stateAfter(step.index) : before)]
      : this.changes(step, before);
    return [choose, ...body];
  }

  changes(step, before) {
    const parts = [];
    if (step.merged && Object.keys(step.merged).length) {
      const base = step.base < 0 ? this.data.whole[-1 - step.base] : this.data.stateAfter(step.base);
      const name = step.base < 0 ? "the start" : "step " + (step.base + 1);
      parts.push(make("h3", {}, "What the join brought, beside " + name), Object.entries(step.merged).map(([field, patch]) => changed(field, patch, base)));
      parts.push(make("h3", {}, "What the step wrote"));
    }
    const wrote = Object.entries(step.patch ?? {});
    parts.push(wrote.map(([field, patch]) => changed(field, patch, before)));
    if (!wrote.length) parts.push(empty(step.status === "done" ? "It changed nothing." : "It has not ended."));
    return parts.flat();
  }

  // -- model and tools ------------------------------------------------------------------------------------------

  model(step) {
    const calls = this.inside(step).filter((call) => call.kind === "model");
    if (!calls.length) return [empty("No model was asked in this step.")];
    return calls.map((call) => {
      const offer = this.data.offers[call.offer];
      const parts = [this.head(call)];
      const messages = (call.messages ?? []).map((name) => this.message(this.data.messages[name]));
      const old = messages.length - 6;
      if (old > 0) parts.push(make("details", {}, make("summary", {}, number(old) + " messages before"), messages.slice(0, old)));
      parts.push(messages.slice(Math.max(0, old)));
      const reply = call.result;
      if (reply) parts.push(this.message({ role: "reply", ...reply }, "reply"));
      if (offer) parts.push(make("details", {}, make("summary", {}, number(offer.length) + " tools were offered: " + visible(offer.map(toolName).join(", "))), block(offer)));
      if (call.options) parts.push(make("details", {}, make("summary", {}, "Options"), block(call.options)));
      return parts.flat();
    }).flat();
  }

  message(message, kind = "") {
    if (!message) return empty("A message that the journal does not hold.");
    const { role, content, text, tool_calls: calls, usage, extras, parsed, finish, model, ...rest } = message;
    const said = content ?? text;
    const thought = extras?.reasoning_content ?? extras?.reasoning;
    const more = Object.entries(rest).filter(([name, value]) => value && !["tool_call_id", "name", "digest"].includes(name));
    return make("div", { class: "message " + kind },
      make("div", { class: "role" }, make("span", {}, role ?? ""), make("span", { class: "data" }, visible(rest.name ?? rest.tool_call_id ?? [model, finish].filter(Boolean).join(", ")))),
      thought ? make("details", {}, make("summary", {}, "Thoughts"), make("div", { class: "text" }, visible(thought))) : null,
      said ? make("div", { class: "text" }, typeof said === "string" ? visible(said) : pretty(said)) : null,
      (calls ?? []).map((call) => make("div", { class: "text" }, "→ " + visible(call.name ?? ""), block(call.arguments ?? call.raw ?? {}))),
      parsed ? block(parsed) : null,
      more.length ? block(Object.fromEntries(more)) : null);
  }

  tools(step) {
    const calls = this.inside(step).filter((call) => call.kind !== "model");
    const asked = (step.asked ?? []).map((one) => this.asked(one));
    if (!calls.length && !asked.length) return [empty("No tool was called in this step.")];
    return [...asked, ...calls.map((call) => [
      this.head(call),
      make("h3", {}, "Arguments"), block(call.args ?? {}),
      call.error ? make("p", { class: "bad data" }, visible(call.error)) : null,
      call.result !== undefined ? [make("h3", {}, "Result"), block(call.result?.output ?? call.result),
        call.result?.error ? make("p", { class: "bad data" }, pretty(call.result.error)) : null] : null,
    ].flat())].flat();
  }

  inside(step) { return step.calls ?? []; }

  head(call) {
    const state = call.unknown ? "nobody knows whether it happened" : call.failed || call.ok === false ? "failed" : call.ok === true ? "done" : "not settled";
    const time = call.t[1] === undefined || call.t[1] === null ? "" : lasting((call.t[1] - call.t[0]) / 1000);
    const more = [call.effect, time, this.spent(call.usage), call.tries ? call.tries + " tries" : null, call.inside ? "inside " + call.inside : null];
    return make("h3", {}, make("span", { class: "pill " + (call.failed || call.ok === false ? "failed" : "") }, call.kind), " ", make("span", { class: "data" }, visible(call.name)),
      make("span", { class: "note" }, "  " + state + ", " + more.filter(Boolean).join(", ") + ", record " + call.seq + (call.settled ? " – " + call.settled : "")));
  }

  // -- run ------------------------------------------------------------------------------------------------------

  run() {
    const { data } = this;
    const rows = new Map();
    for (const step of data.steps) {
      const name = (step.part || step.node).replace(/^node-/, "");
      const row = rows.get(name) ?? { count: 0, work: 0, calls: 0, in: 0, out: 0, cost: 0 };
      row.count++;
      row.work += step.work;
      row.calls += (step.calls ?? []).length;
      for (const key of ["in", "out", "cost"]) row[key] += step.usage?.[key] ?? 0;
      rows.set(name, row);
    }
    const head = ["node", "steps", "worked", "calls", "tokens in", "out", "cost"];
    const table = make("table", {}, make("thead", {}, make("tr", {}, head.map((name, at) => make("th", { scope: "col", class: at ? "n" : null }, name)))),
      make("tbody", {}, [...rows].map(([name, row]) => make("tr", {}, make("th", { scope: "row", class: "data" }, visible(name)),
        [number(row.count), lasting(row.work), number(row.calls), number(row.in), number(row.out), money(row.cost)].map((cell) => make("td", { class: "n" }, cell))))));
    return [
      data.error ? make("p", { class: "bad data" }, visible(data.error)) : null,
      data.waiting.map((question) => make("p", { class: "said data" }, "waits: " + visible(question))),
      data.output !== null ? [make("h3", {}, "Output"), block(data.output)] : null,
      make("h3", {}, "By node"), make("div", { tabindex: 0, role: "region", "aria-label": "By node" }, table),
      Object.keys(data.labels).length ? [make("h3", {}, "Labels"), block(data.labels)] : null,
      make("h3", {}, "State at the end"), fields(data.final),
    ].flat();
  }
}

const ENDS = { timer: "the time came", event: "none came in time" };
const toolName = (tool) => tool.name ?? tool.function?.name ?? "?";
const empty = (text) => make("p", { class: "empty" }, text);

const described = (facts) => make("dl", {}, facts.filter(([, value]) => value !== null && value !== undefined && value !== "")
  .map(([name, value]) => [make("dt", {}, name), make("dd", { class: "data" }, visible(value))]).flat());

const fields = (state) => make("div", {}, Object.entries(state).map(([name, value]) =>
  make("div", { class: "field" }, make("div", { class: "name data" }, visible(name)), block(value))));

function changed(name, [how, value, gone], before) {
  const said = how === "+" ? "added to it" : how === "~" ? "changed keys" : name in before ? "" : "new";
  let lines;
  if (how === "+") lines = pretty(value).split("\n").map((line) => ["+", line]);
  else if (how === "~") {
    const old = Object.fromEntries(Object.keys(value).concat(gone ?? []).filter((key) => key in (before[name] ?? {})).map((key) => [key, before[name][key]]));
    lines = differences(pretty(old), pretty(value));
  } else lines = name in before ? differences(pretty(before[name]), pretty(value)) : pretty(value).split("\n").map((line) => ["+", line]);
  const kinds = { "+": "add", "-": "cut", " ": "" };
  return make("div", { class: "field" }, make("div", { class: "name" }, make("span", { class: "data" }, visible(name)), said ? make("span", { class: "how" }, "  " + said) : null),
    make("div", { class: "diff", tabindex: 0 }, lines.map(([kind, line]) => make("div", { class: kinds[kind] }, line))));
}
