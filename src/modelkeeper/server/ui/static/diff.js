// Two models, layer against layer: rows, folds of what repeats, search, and all rows at a glance.
import { ask, count, doubts, element } from "./dom.js";
import { HEIGHT, Rows } from "./rows.js";

const ORDER = ["copied", "widened", "narrowed", "resized", "joined", "inserted", "kept", "added", "skipped", "changed", "same"];
const at = (name) => document.getElementById(name);
const [frame, box, map, detail] = ["diff", "diff-rows", "diff-map", "diff-detail"].map(at);
const [changes, fold, find] = ["diff-changes", "diff-fold", "diff-find"].map(at);
box.classList.add("diff");

let found; // what the service said
let shown = []; // what the list shows: numbers of rows, or folds
let sought = "";
const open = new Set(); // folds that are unfolded

/** Which rows are shown, with folds in place of what repeats. */
function arrange() {
  const folds = new Map(found.folds.map((fold) => [fold[0], fold]));
  const hidden = changes.checked ? new Set(["same", "copied"]) : new Set();
  shown = [];
  for (let row = 0; row < found.rows.length; row++) {
    const here = !sought && !changes.checked ? folds.get(row) : undefined;
    if (here && !open.has(row)) {
      const [start, period, again] = here;
      for (let first = start; first < start + period; first++) shown.push(first);
      shown.push({ start, period, again });
      row = start + period * (again + 1) - 1;
    } else if (!hidden.has(found.rows[row].action)) shown.push(row);
  }
  rows.show(shown.length);
  fold.hidden = !found.folds.length || changes.checked || Boolean(sought);
  const folded = open.size < found.folds.length;
  fold.textContent = folded ? "Unfold repeats" : "Fold repeats";
  fold.setAttribute("aria-pressed", String(folded));
  paint();
}

function side(layer, name) {
  if (!layer) return [element("span", { class: "n" }), element("span", { class: name }), element("span", { class: "shape" })];
  const kind = layer.name.startsWith(layer.kind) ? "" : element("span", { class: "kind" }, layer.kind);
  return [
    element("span", { class: "n" }, String(layer.number)),
    element("span", { class: name, title: `${layer.name} (${layer.kind})` }, layer.name, kind),
    element("span", { class: "shape", title: layer.shapes }, layer.shapes),
  ];
}

function matches(row) {
  return [row.parent, row.child].some((layer) => layer && `${layer.name} ${layer.kind}`.toLowerCase().includes(sought));
}

function draw(index) {
  const one = shown[index];
  if (typeof one !== "number") {
    const rows = one.period === 1 ? "row" : `${one.period} rows`;
    const words = `the same ${rows} ${one.again.toLocaleString("en")} more time${one.again === 1 ? "" : "s"}`;
    return element("div", { class: "row fold" }, element("button", { type: "button", tabindex: "-1" }, words));
  }
  const row = found.rows[one];
  return element(
    "div",
    { class: `row do-${row.action}${sought && matches(row) ? " hit" : ""}` },
    ...side(row.parent, "left"),
    element("span", { class: "act" }, row.action),
    ...side(row.child, "right"),
    element("span", { class: "differs", title: row.differs.join("\n") }, row.differs.join("; ")),
  );
}

const rows = new Rows(box, draw);

box.addEventListener("choose", ({ detail: index }) => {
  const one = shown[index];
  if (typeof one === "number") return tell(found.rows[one]);
  open.add(one.start);
  arrange();
  box.focus();
});

/** What becomes of each tensor of a row. */
function tell(row) {
  const layer = row.child ?? row.parent;
  const heading = element("h3", {}, element("bdi", {}, layer.name), ` · ${layer.kind} · `, element("span", { class: `detail-act do-${row.action}` }, row.action));
  const body = row.tensors.map((tensor) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, element("bdi", {}, tensor.name)),
      element("td", { class: "shape" }, tensor.shape),
      element("td", {}, tensor.action ? element("span", { class: `detail-act do-${tensor.action}` }, tensor.action) : "–"),
      element("td", {}, element("bdi", {}, tensor.from ?? "")),
      element("td", {}, element("bdi", {}, [tensor.why, tensor.exact === false ? "not exact" : ""].filter(Boolean).join("; "))),
    ),
  );
  const titles = ["Tensor", "Shape", "What", "From", "Why"].map((title) => element("th", { scope: "col" }, title));
  const table = element("table", { class: "rows small" }, element("thead", {}, element("tr", {}, titles)), element("tbody", {}, body));
  const differs = row.differs.length ? element("p", {}, `Differs: ${row.differs.join("; ")}`) : "";
  const none = row.child ? "It has no weights." : "Only the lender has it.";
  detail.replaceChildren(heading, differs, body.length ? table : element("p", { class: "hint" }, none));
  detail.hidden = false;
}

/** All rows at a glance, and which of them can be seen. */
function paint() {
  map.style.height = box.style.height;
  const height = (map.height = Math.max(1, map.clientHeight));
  const canvas = map.getContext("2d");
  const style = getComputedStyle(document.documentElement);
  const colours = Object.fromEntries(ORDER.map((action) => [action, style.getPropertyValue(`--${action}`)]));
  canvas.clearRect(0, 0, map.width, height);
  const each = height / Math.max(1, shown.length);
  shown.forEach((one, index) => {
    const row = typeof one === "number" ? found.rows[one] : null;
    canvas.fillStyle = row ? colours[row.action] : style.getPropertyValue("--line");
    canvas.globalAlpha = row && row.action === "same" ? 0.25 : 0.85;
    const left = row && !row.parent ? map.width / 2 : 0;
    const width = row && (!row.parent || !row.child) ? map.width / 2 : map.width;
    canvas.fillRect(left + 1, index * each, width - 2, Math.max(1, each - (each > 3 ? 1 : 0)));
  });
  canvas.globalAlpha = 1;
  canvas.strokeStyle = style.getPropertyValue("--ink");
  canvas.lineWidth = 1.5;
  const whole = Math.max(1, shown.length * HEIGHT);
  const top = (box.scrollTop / whole) * height;
  canvas.strokeRect(1, top + 1, map.width - 2, Math.max(4, Math.min(1, box.clientHeight / whole) * height - 2));
}

function summarise() {
  const { plan, similarity, counts, rows: all } = found;
  const words = [element("b", {}, `similarity ${similarity.toFixed(3)}`)];
  if (plan) {
    words.push(`; ${(100 * plan.coverage).toFixed(1)} % of the numbers are lent; `);
    words.push(plan.exact ? "exact: the borrower starts by computing what the lender computes." : "approximate.");
    doubts(at("diff-doubts"), plan.doubts);
  } else words.push("; planning took too long, so colours show the alignment alone.");
  at("diff-summary").replaceChildren(...words);
  const legend = ORDER.filter((action) => counts[action]).map((action) => {
    const layers = `${action} ${counts[action].toLocaleString("en")}`;
    const numbers = plan?.actions[action] ? ` (${count(plan.actions[action].parameters)})` : "";
    return element("li", { class: `do-${action}`, title: "rows (parameters)" }, layers + numbers);
  });
  at("diff-legend").replaceChildren(...legend);
  frame.dataset.rows = all.length;
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
  const first = shown.findIndex((one) => sought && matches(found.rows[one]));
  if (first >= 0) rows.go(first);
});
find.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !sought) return;
  event.preventDefault();
  const hits = shown.flatMap((one, index) => (matches(found.rows[one]) ? [index] : []));
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
