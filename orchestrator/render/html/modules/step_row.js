// One row of the list of steps: its name, what came of it, and a bar of when it ran.
import { make } from "./elements.js";
import { looksOf, sign, WAITS } from "./step_look.js";
import { counted, lasting, number, tokens, visible } from "./texts.js";

/** @import { Outline, Row } from "./outline.js" */
/** @import { TimeAxis } from "./time_axis.js" */
/** @import { Step } from "./types.js" */

const INDENT = 12;

/**
 * @param {Outline} outline
 * @param {Row} row
 * @param {TimeAxis} axis
 * @param {string} id
 */
export function rowElement(outline, row, axis, id) {
  const cells = { step: stepCells, attempt: attemptCells, map: groupCells, item: groupCells }[row.kind](outline, row, axis);
  const folds = row.inside.length > 0 && !outline.flat;
  const name = /** @type {HTMLElement} */ (cells[1]);
  if (!outline.flat) name.style.paddingLeft = row.depth * INDENT + "px";
  name.prepend(folds ? make("span", { class: "twist", "aria-hidden": "true" }, outline.closed.has(row.key) ? "▸" : "▾") : make("span", { class: "twist none" }));
  return make("div", {
    class: "row " + row.kind, role: "treeitem", id, "data-key": row.key, "data-index": row.index, "aria-level": outline.flat ? 1 : row.depth + 1,
    "aria-expanded": folds ? String(!outline.closed.has(row.key)) : null,
  }, cells);
}

/**
 * Make what a row shows anew. The row itself stays, so that a click on it that has begun is one.
 * @param {HTMLElement} element
 * @param {HTMLElement} made  The same row as it is now.
 */
export function renew(element, made) {
  element.replaceChildren(...made.childNodes);
  const open = made.getAttribute("aria-expanded");
  if (open === null) element.removeAttribute("aria-expanded");
  else element.setAttribute("aria-expanded", open);
}

/**
 * Put the bar of a row where it belongs on another axis.
 * @param {Outline} outline @param {Row} row @param {TimeAxis} axis @param {HTMLElement} element
 */
export function placeBar(outline, row, axis, element) {
  if (row.kind === "attempt") return;
  element.lastElementChild?.replaceWith(row.kind === "step" ? stepTrack(outline, row, axis) : groupTrack(outline, row, axis));
}

/** @param {Outline} outline @param {Row} row @param {TimeAxis} axis */
function stepTrack(outline, row, axis) {
  return track(outline.data.steps[row.index], axis, row.inside.some((inside) => inside.kind !== "attempt"));
}

/** @param {Outline} outline @param {Row} row @param {TimeAxis} axis */
function groupTrack(outline, row, axis) {
  const { data } = outline, members = outline.members(row), own = members.map((index) => data.steps[index]);
  const bar = make("span", { class: "track" });
  bar.append(part(axis, Math.min(...own.map((step) => step.t[0])), Math.max(...own.map((step) => step.t[1] ?? data.span)), "graph", lasting(data.elapsed(members)) + " elapsed"));
  return bar;
}

/** @param {Outline} outline @param {Row} row @param {TimeAxis} axis */
function stepCells(outline, row, axis) {
  const step = outline.data.steps[row.index];
  const [what, said, where] = step.name;
  const about = row.around?.kind === "item" && !outline.flat && itemName(outline, row.around) === said ? "" : said; // the row above says it
  const name = make("span", { class: "what", title: [what, said, where && "in " + where].filter(Boolean).map(visible).join(" ") }, sign(looksOf(step)),
    make("span", { class: "data" }, visible(what)), about ? make("span", { class: "about data" }, " " + visible(about)) : null,
    outline.flat && where ? make("span", { class: "path data" }, "  " + visible(where)) : null);
  return [
    make("span", { class: "no" }, String(row.index + 1)), name,
    make("span", { class: "data outcome" }, step.status === "done" ? (step.outcome === "done" ? "" : visible(step.outcome ?? "")) : step.status),
    make("span", { class: "n" }, lasting(step.work)),
    make("span", { class: "n tok" }, tokens(step.usage) ? number(tokens(step.usage)) : ""),
    stepTrack(outline, row, axis),
  ];
}

/** @param {Outline} outline @param {Row} row */
function attemptCells(outline, row) {
  const step = outline.data.steps[row.index], [attempt, error] = (step.retries ?? [])[row.place];
  return [
    make("span", { class: "no" }),
    make("span", { class: "what", title: visible(error) }, sign("failed"), "attempt " + attempt, make("span", { class: "about data" }, " " + visible(error))),
    make("span", { class: "outcome" }, "retried"), make("span", { class: "n" }), make("span", { class: "n tok" }), make("span", { class: "track" }),
  ];
}

/** @param {Outline} outline @param {Row} row @param {TimeAxis} axis */
function groupCells(outline, row, axis) {
  const { data } = outline, members = outline.members(row), own = members.map((index) => data.steps[index]);
  const map = mapOf(outline, row);
  const says = row.kind === "map" ? [map.target, "each of " + counted(map.count, "item") + " in " + map.each] : [itemName(outline, row) ?? "item " + (row.place + 1), ""];
  const elapsed = data.elapsed(members), summed = own.reduce((sum, step) => sum + (step.up !== undefined && members.includes(step.up) ? 0 : step.work), 0);
  const used = own.reduce((sum, step) => sum + (step.up !== undefined && members.includes(step.up) ? 0 : tokens(step.usage)), 0);
  return [
    make("span", { class: "no" }),
    make("span", { class: "what" }, row.kind === "map" ? make("span", { class: "mark map", "aria-hidden": "true" }, "⋔") : null, make("span", { class: "data" }, visible(says[0])), make("span", { class: "about data" }, " " + visible(says[1]))),
    make("span", { class: "outcome", title: "the working times of its steps added up" }, "Σ " + lasting(summed)),
    make("span", { class: "n", title: "from its first beginning to its last end" }, lasting(elapsed)),
    make("span", { class: "n tok" }, used ? number(used) : ""), groupTrack(outline, row, axis),
  ];
}

/** The name of the item that a row is of. @param {Outline} outline @param {Row} row @returns {string | undefined} */
function itemName(outline, row) { return mapOf(outline, row).items[row.place]; }

/** The map that a row is of, or of an item of. @param {Outline} outline @param {Row} row */
function mapOf(outline, row) { return outline.data.run.maps[row.kind === "map" ? row.place : Number(row.key.split(":")[1])]; }

/** @param {Step} step @param {TimeAxis} axis @param {boolean} graph */
function track(step, axis, graph) {
  const end = axis.span;
  const found = make("span", { class: "track" });
  const [began, ended] = [step.t[0], step.t[1] ?? end];
  const waits = step.waits ?? [];
  let at = began;
  for (const [why, from, to] of waits) {
    if (from > at) found.append(part(axis, at, from, looksOf(step)));
    found.append(part(axis, Math.max(from, at), to ?? end, "wait " + why, WAITS[why] + ", " + lasting(((to ?? end) - from) / 1000)));
    at = Math.max(at, to ?? end);
  }
  if (ended > at || !waits.length) found.append(part(axis, at, ended, looksOf(step) + (graph ? " graph" : ""), lasting((ended - began) / 1000)));
  return found;
}

/** @param {TimeAxis} axis @param {number} from @param {number} to @param {string} kind @param {string} [title] */
function part(axis, from, to, kind, title) {
  const whole = axis.part.to >= 1, begin = axis.percent(from), end = axis.percent(to);
  const left = Math.max(-1, whole ? Math.min(begin, 99) : begin); // what just began is seen, too
  const bar = make("i", { class: kind, title });
  if (left > 101 || end < -1) bar.hidden = true;
  bar.style.left = left + "%";
  bar.style.width = Math.max(0, Math.min(end, 101) - left) + "%";
  return bar;
}
