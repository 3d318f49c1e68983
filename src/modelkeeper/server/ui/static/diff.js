// Two models, layer against layer: rows with wires, folds of what repeats, search, and all rows at a glance.
import { Detail } from "./diff_detail.js";
import { ask, count, doubts, element } from "./dom.js";
import { HEIGHT, Rows } from "./rows.js";
import { breadth, hiddenWires, wires } from "./wires.js";

const ORDER = ["copied", "widened", "narrowed", "resized", "joined", "inserted", "kept", "added", "skipped", "changed", "same"];
const at = (name) => document.getElementById(name);
const [frame, box, map] = ["diff", "diff-rows", "diff-map"].map(at);
const [changes, fold, find] = ["diff-changes", "diff-fold", "diff-find"].map(at);
box.classList.add("diff");

let found; // what the service said, in columns
let shown = []; // what the list shows: numbers of rows, or folds
let sought = "";
let bound = new Set(); // rows that widen together
const open = new Set(); // folds that are unfolded

const action = (row) => found.actions[found.action[row]];
const end = (one) => one.start + one.period * (one.again + 1) - 1; // the last row of a fold

/** Which rows are shown, with folds in place of what repeats. */
function arrange() {
  const folds = new Map(found.folds.map((fold) => [fold[0], fold]));
  const hidden = changes.checked ? new Set(["same", "copied"]) : new Set();
  shown = [];
  for (let row = 0; row < found.count; row++) {
    const here = !sought && !changes.checked ? folds.get(row) : undefined;
    if (here && !open.has(row)) {
      const [start, period, again] = here;
      for (let first = start; first < start + period; first++) shown.push(first);
      shown.push({ start, period, again });
      row = start + period * (again + 1) - 1;
    } else if (!hidden.has(action(row))) shown.push(row);
  }
  box.classList.toggle("no-wires", changes.checked); // rows are missing that they would lead to
  rows.show(shown.length);
  fold.hidden = !found.folds.length || changes.checked || Boolean(sought);
  const folded = open.size < found.folds.length;
  fold.textContent = folded ? "Unfold repeats" : "Fold repeats";
  fold.setAttribute("aria-pressed", String(folded));
  paint();
}

/** The layer of a row on one side, or null. */
function layer(side, row) {
  const number = side.rows[row];
  if (number < 0) return null;
  return { number, name: side.names[number], kind: found.words[side.kinds[number]], shapes: found.words[side.shapes[number]] };
}

function cells(side, row, name) {
  const here = layer(side, row);
  const picture = wires(side, row);
  if (!here) return [picture, element("span", { class: "n" }), element("span", { class: name }), element("span", { class: "shape" })];
  const kind = here.name.startsWith(here.kind) ? "" : element("span", { class: "kind" }, here.kind);
  return [
    picture,
    element("span", { class: "n" }, String(here.number)),
    element("span", { class: name, title: `${here.name} (${here.kind})` }, here.name, kind),
    element("span", { class: "shape", title: here.shapes }, here.shapes),
  ];
}

function matches(row) {
  return [found.parent, found.child].some((side) => {
    const here = layer(side, row);
    return here && `${here.name} ${here.kind}`.toLowerCase().includes(sought);
  });
}

/** Is a row marked, or one that a fold hides? */
function isBound(one) {
  if (typeof one === "number") return bound.has(one);
  for (let row = one.start + one.period; bound.size && row <= end(one); row++) if (bound.has(row)) return true;
  return false;
}

function draw(index) {
  const one = shown[index];
  const marked = isBound(one) ? " bound" : "";
  if (typeof one !== "number") {
    const many = one.period === 1 ? "row" : `${one.period} rows`;
    const words = `the same ${many} ${one.again.toLocaleString("en")} more time${one.again === 1 ? "" : "s"}`;
    const sides = [found.parent, found.child].map((side) => hiddenWires(side, one.start + one.period, end(one)));
    return element("div", { class: `row fold${marked}` }, ...sides, element("button", { type: "button", tabindex: "-1" }, words));
  }
  const differs = found.differs[one] ?? [];
  return element(
    "div",
    { class: `row do-${action(one)}${sought && matches(one) ? " hit" : ""}${marked}` },
    ...cells(found.parent, one, "left"),
    element("span", { class: "act" }, action(one)),
    ...cells(found.child, one, "right"),
    element("span", { class: "differs", title: differs.join("\n") }, differs.join("; ")),
  );
}

const rows = new Rows(box, draw);

/** Bring a row into view, wherever it hides. */
function go(row) {
  let index = shown.indexOf(row);
  if (index < 0) {
    const inside = found.folds.find(([start, period, again]) => row >= start && row < start + period * (again + 1));
    if (inside) open.add(inside[0]);
    if (changes.checked) changes.checked = false;
    arrange();
    index = shown.indexOf(row);
  }
  rows.go(index);
  box.focus();
}

const detail = new Detail(at("diff-detail"), frame.dataset.query, {
  go,
  mark(some) {
    bound = new Set(some);
    frame.dataset.bound = bound.size;
    rows.again();
    paint();
  },
});

box.addEventListener("choose", ({ detail: index }) => {
  const one = shown[index];
  if (typeof one === "number") return detail.tell(one);
  open.add(one.start);
  arrange();
  box.focus();
});

/** All rows at a glance, and which of them can be seen; what widens together stands out at the right. */
function paint() {
  map.style.height = box.style.height;
  const height = (map.height = Math.max(1, map.clientHeight));
  const canvas = map.getContext("2d");
  const style = getComputedStyle(document.documentElement);
  const colours = Object.fromEntries(ORDER.map((each) => [each, style.getPropertyValue(`--${each}`)]));
  const [rest, accent, ink] = ["--line", "--accent", "--ink"].map((name) => style.getPropertyValue(name));
  canvas.clearRect(0, 0, map.width, height);
  const each = height / Math.max(1, shown.length);
  const whole = bound.size ? map.width - 8 : map.width;
  shown.forEach((one, index) => {
    const row = typeof one === "number" ? one : -1;
    const [left, right] = row < 0 ? [true, true] : [found.parent.rows[row] >= 0, found.child.rows[row] >= 0];
    canvas.fillStyle = row < 0 ? rest : colours[action(row)];
    canvas.globalAlpha = row >= 0 && action(row) === "same" ? 0.25 : 0.85;
    canvas.fillRect((left ? 0 : whole / 2) + 1, index * each, (left && right ? whole : whole / 2) - 2, Math.max(1, each - (each > 3 ? 1 : 0)));
    if (isBound(one)) {
      canvas.globalAlpha = 1;
      canvas.fillStyle = accent;
      canvas.fillRect(whole + 1, index * each, 6, Math.max(2, each - 1));
    }
  });
  canvas.globalAlpha = 1;
  canvas.strokeStyle = ink;
  canvas.lineWidth = 1.5;
  const all = Math.max(1, shown.length * HEIGHT);
  const top = (box.scrollTop / all) * height;
  canvas.strokeRect(1, top + 1, map.width - 2, Math.max(4, Math.min(1, box.clientHeight / all) * height - 2));
}

function summarise() {
  const { plan, similarity, counts } = found;
  const words = [element("b", {}, `similarity ${similarity.toFixed(3)}`)];
  if (plan) {
    words.push(`; ${(100 * plan.coverage).toFixed(1)} % of the numbers are lent; `);
    words.push(plan.exact ? "exact: the borrower starts by computing what the lender computes." : "approximate.");
    doubts(at("diff-doubts"), plan.doubts);
  } else words.push("; planning took too long, so colours show the alignment alone.");
  at("diff-summary").replaceChildren(...words);
  const legend = ORDER.filter((each) => counts[each]).map((each) => {
    const layers = `${each} ${counts[each].toLocaleString("en")}`;
    const numbers = plan?.actions[each] ? ` (${count(plan.actions[each].parameters)})` : "";
    return element("li", { class: `do-${each}`, title: "rows (parameters)" }, layers + numbers);
  });
  at("diff-legend").replaceChildren(...legend);
  const thinned = found.parent.wires.left_out + found.child.wires.left_out;
  at("diff-wires").textContent = `${thinned.toLocaleString("en")} more wire${thinned === 1 ? " is" : "s are"} left out, where too many run side by side.`;
  at("diff-wires").hidden = !thinned;
  frame.style.setProperty("--wires-left", `${breadth(found.parent.wires.width)}px`);
  frame.style.setProperty("--wires-right", `${breadth(found.child.wires.width)}px`);
  frame.dataset.rows = found.count;
}

box.addEventListener("rows", () => found && paint());
changes.addEventListener("change", arrange);
fold.addEventListener("click", () => {
  const folded = open.size < found.folds.length;
  open.clear();
  if (folded) for (const [start] of found.folds) open.add(start);
  arrange();
});
find.addEventListener("input", () => {
  sought = find.value.trim().toLowerCase();
  arrange();
  const first = shown.findIndex((one) => sought && matches(one));
  if (first >= 0) rows.go(first);
});
find.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !sought) return;
  event.preventDefault();
  const hits = shown.flatMap((one, index) => (matches(one) ? [index] : []));
  if (hits.length) rows.go(hits.find((hit) => hit > rows.at) ?? hits[0]);
});
map.addEventListener("click", (event) => rows.go(Math.floor((event.offsetY / map.clientHeight) * shown.length)));

try {
  found = await ask(frame.dataset.source);
  summarise();
  arrange();
  frame.dataset.ready = "true";
} catch (problem) {
  at("diff-summary").replaceChildren(element("span", { class: "problem", role: "alert" }, problem.message));
}
