// A run's data, and what follows from it: states, moments, where a record belongs.

class RunData {
  constructor(data) {
    Object.assign(this, data);
    this.steps.forEach((step, index) => { step.index = index; });
    this.after = new Map(); // states that were looked at; others are worked out when they are
    this.bySeq = new Map(this.steps.filter((step) => step.seq !== undefined).map((step) => [step.seq, step.index]));
    const counts = new Map();
    this.named = new Map(); // how-manieth of its node in its branch -> step: the same in another run of the graph
    for (const step of this.steps) {
      const place = (step.path ?? "") + "\n" + (step.part || step.node), count = counts.get(place) ?? 0;
      counts.set(place, count + 1);
      step.name = place + "\n" + count;
      this.named.set(step.name, step.index);
    }
    this.span = this.records.reduce((most, record) => Math.max(most, record[0]), 1);
  }

  // -- states ---------------------------------------------------------------------------------------------------

  stateBefore(index) {
    const step = this.steps[index];
    if (step.base === undefined) return null;
    const base = step.base < 0 ? this.whole[-1 - step.base] : this.stateAfter(step.base);
    return base === null ? null : patched(base, step.merged);
  }

  stateAfter(index) {
    const way = [];
    let at = index;
    let state = null;
    while (state === null) {
      if (this.after.has(at)) { state = this.after.get(at); break; }
      const step = this.steps[at];
      if (step.base === undefined) return null;
      way.push(at);
      if (step.base < 0) state = this.whole[-1 - step.base];
      else at = step.base;
    }
    for (const number of way.reverse()) {
      const step = this.steps[number];
      state = patched(patched(state, step.merged), step.patch);
      if (number % 64 === 0) this.after.set(number, state); // enough to find any other from in a moment
    }
    if (this.after.size < 400) this.after.set(index, state);
    return state;
  }

  // -- moments --------------------------------------------------------------------------------------------------

  time(seq) { return this.records[Math.min(Math.max(seq, 1), this.records.length) - 1][0]; }

  type(seq) { return this.types[this.records[Math.min(Math.max(seq, 1), this.records.length) - 1][1]]; }

  // The step that a record ended; else the last one at work then; else the one that had ended last.
  stepAt(seq) {
    const exact = this.bySeq.get(seq);
    if (exact !== undefined && this.steps[exact].status !== "dropped") return exact;
    let work = -1, last = -1;
    for (const step of this.steps) {
      if (step.began > seq) continue;
      if (step.seq === undefined || step.seq > seq) work = step.index;
      else if (last < 0 || step.seq >= this.steps[last].seq) last = step.index;
    }
    return work >= 0 ? work : last;
  }

  // Where a run stands that has not ended: the step that waits or works, innermost.
  open() {
    const found = this.steps.filter((step) => ["waiting", "interrupted", "running"].includes(step.status));
    const inside = new Set(found.map((step) => step.up));
    return found.find((step) => !inside.has(step.index))?.index ?? null;
  }

  // The record at which a step is looked at: the one that ended it, else the newest.
  seqOf(index) { return this.steps[index].seq ?? this.head; }

  // -- searching ------------------------------------------------------------------------------------------------

  matches(index, words) {
    const step = this.steps[index];
    if (step.text === undefined) {
      const { text, ...rest } = step;
      const said = [JSON.stringify(rest)];
      for (const call of step.calls ?? []) for (const name of call.messages ?? []) said.push(JSON.stringify(this.messages[name] ?? ""));
      step.text = said.join("\n").toLowerCase();
    }
    return words.every((word) => step.text.includes(word));
  }
}

function patched(state, patch) {
  if (!patch) return state;
  const made = Object.assign(Object.create(null), state);
  for (const [name, [how, value, gone]] of Object.entries(patch)) {
    if (how === "+") made[name] = typeof value === "string" ? (made[name] ?? "") + value : [...(made[name] ?? []), ...value];
    else if (how === "~") {
      const whole = Object.assign(Object.create(null), made[name]);
      Object.assign(whole, value);
      for (const key of gone ?? []) delete whole[key];
      made[name] = whole;
    } else made[name] = value;
  }
  return made;
}

// Lines of two texts as [" " | "+" | "-", line]; long ones are told as wholly changed between what is alike.
function differences(before, after) {
  const a = before.split("\n"), b = after.split("\n");
  let head = 0, tail = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const x = a.slice(head, a.length - tail), y = b.slice(head, b.length - tail);
  const middle = x.length * y.length > 250000 ? [...x.map((l) => ["-", l]), ...y.map((l) => ["+", l])] : aligned(x, y);
  return [...near(a.slice(0, head), true), ...middle, ...near(a.slice(a.length - tail), false)];
}

function near(lines, end) {
  const most = 3;
  if (lines.length <= most + 1) return lines.map((line) => [" ", line]);
  const left = [" ", "… " + number(lines.length - most) + " lines alike"];
  const kept = (end ? lines.slice(-most) : lines.slice(0, most)).map((line) => [" ", line]);
  return end ? [left, ...kept] : [...kept, left];
}

function aligned(x, y) {
  const table = Array.from({ length: x.length + 1 }, () => new Uint32Array(y.length + 1));
  for (let i = x.length - 1; i >= 0; i--)
    for (let j = y.length - 1; j >= 0; j--)
      table[i][j] = x[i] === y[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
  const found = [];
  let i = 0, j = 0;
  while (i < x.length && j < y.length) {
    if (x[i] === y[j]) { found.push([" ", x[i]]); i++; j++; }
    else if (table[i + 1][j] >= table[i][j + 1]) found.push(["-", x[i++]]);
    else found.push(["+", y[j++]]);
  }
  while (i < x.length) found.push(["-", x[i++]]);
  while (j < y.length) found.push(["+", y[j++]]);
  return found;
}
