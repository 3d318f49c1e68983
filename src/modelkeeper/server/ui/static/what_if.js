// Which model would lend to one that is dropped here, or to one of the zoo at other sizes, while sliders move?
import { ask, count, doubts, drawn, element } from "./dom.js";

const MOST = 20 * 1024 * 1024;
const PAUSE = 200; // milliseconds for which sliders stand still before it is asked
const at = (name) => document.getElementById(name);
const [form, drop, file, answer] = ["what-if", "drop", "file", "answer"].map(at);
const sizes = at("sizes"); // null: no model of the zoo is asked about
let graph = ""; // the text of the file
let asking = null; // what stops the question that is under way

function fail(words) {
  answer.replaceChildren(element("p", { class: "problem", role: "alert" }, words));
}

async function take(given) {
  if (!given) return;
  if (given.size > MOST) return fail(`${given.name} has more than ${MOST.toLocaleString("en")} bytes.`);
  graph = await given.text();
  try {
    JSON.parse(graph);
  } catch {
    graph = "";
    return fail(`${given.name} is no JSON: write it with modelkeeper describe --json.`);
  }
  at("chosen").value = given.name;
  at("of-zoo").value = "";
  sizes?.remove(); // they are of another model
  history.replaceState(null, "", location.pathname);
  await submit();
}

function link(parent) {
  return element("a", { class: "name", href: `/ui/models/${encodeURIComponent(parent.id)}` }, element("bdi", {}, parent.name));
}

/** Where a model and the one that is asked about stand side by side; one that was dropped here is nowhere. */
function against(found, parent) {
  return `/ui/diff?parent=${encodeURIComponent(parent)}&${found.borrower}`;
}

function quality(one) {
  return one.value === null ? "" : `${one.metric} ${Number(one.value.toPrecision(4))}${one.data ? ` on ${one.data}` : ""}`;
}

function diff(found, rival) {
  if (!found.borrower) return [];
  return [" ", element("a", { class: "go", href: against(found, rival.id) }, "diff", element("span", { class: "unseen" }, ` of ${rival.name} and the model`))];
}

function lent(found) {
  const actions = Object.entries(found.actions);
  const bar = drawn("svg", { class: "bar", viewBox: "0 0 100 1", preserveAspectRatio: "none", "aria-hidden": "true" });
  let left = 0;
  for (const [action, row] of actions) {
    bar.append(drawn("rect", { class: `do-${action}`, x: left, y: 0, width: row.percent, height: 1 }));
    left += row.percent;
  }
  const body = actions.map(([action, row]) =>
    element("tr", {}, element("th", { scope: "row", class: `detail-act do-${action}` }, action), ...[row.layers, row.tensors].map((number) => element("td", { class: "num" }, String(number))), element("td", { class: "num" }, count(row.parameters)), element("td", { class: "num" }, `${row.percent} %`)),
  );
  const titles = ["What", "Layers", "Tensors", "Parameters", "Share"].map((title, index) => element("th", { scope: "col", class: index ? "num" : null }, title));
  return [bar, element("table", { class: "rows small" }, element("thead", {}, element("tr", {}, titles)), element("tbody", {}, body))];
}

function show(found) {
  const parts = [];
  if (found.cold) {
    parts.push(element("p", { class: "lead" }, "A cold start."), element("p", {}, found.reason));
  } else {
    const names = found.parents.flatMap((parent, index) => [index ? " and " : "", link(parent)]);
    parts.push(element("p", { class: "lead" }, "It would start from ", ...names, "."));
    parts.push(element("p", {}, found.reason));
    const exact = found.exact ? "exact: before any training it computes what the parent computes" : "approximate";
    parts.push(element("p", {}, `Similarity ${found.similarity.toFixed(3)}, ${found.transferred} % of the numbers; ${exact}.`));
    if (found.doubts.length) parts.push(doubts(element("details", { class: "doubts" }), found.doubts));
    if (quality(found)) parts.push(element("p", { class: "hint" }, `The parent: ${quality(found)}, ${found.framework}.`));
    parts.push(...lent(found));
    if (found.borrower) parts.push(element("p", {}, element("a", { href: against(found, found.parent) }, "Layer against layer")));
  }
  for (const warning of found.warnings) parts.push(element("p", { class: "hint" }, warning));
  parts.push(element("p", { class: "hint" }, `Considered ${found.considered.toLocaleString("en")} models, aligned ${found.aligned.toLocaleString("en")} architectures.`));
  answer.replaceChildren(element("section", { class: "card" }, ...parts));
  if (!found.runners_up.length) return;
  const body = found.runners_up.map((rival) =>
    element("tr", {}, element("td", {}, link(rival), ...diff(found, rival), rival.owner ? element("span", { class: "sub" }, element("bdi", {}, rival.owner)) : ""), element("td", { class: "num" }, rival.similarity.toFixed(3)), element("td", {}, element("bdi", {}, quality(rival))), element("td", {}, element("bdi", {}, rival.why))),
  );
  const titles = ["Model", "Similarity", "Score", "Why not"].map((title, index) => element("th", { scope: "col", class: index === 1 ? "num" : null }, title));
  const table = element("table", { class: "rows" }, element("thead", {}, element("tr", {}, titles)), element("tbody", {}, body));
  answer.append(element("h2", {}, "Runners-up"), element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runners-up" }, table));
}

/** Ask, and show what comes; a question that another has overtaken is stopped and forgotten. */
async function put(body) {
  asking?.abort();
  const mine = (asking = new AbortController());
  answer.setAttribute("aria-busy", "true");
  if (at("busy")) at("busy").textContent = "Searching…";
  let found = null;
  let problem = null;
  try {
    found = await ask(answer.dataset.source, { method: "POST", body, headers: { "content-type": "application/json" }, signal: mine.signal });
  } catch (error) {
    problem = error;
  }
  if (mine !== asking) return;
  answer.setAttribute("aria-busy", "false");
  if (at("busy")) at("busy").textContent = "";
  if (at("then")) at("then").value = problem ? "–" : `${found.sizes.layers.toLocaleString("en")} layers, ${count(found.sizes.parameters)} parameters`;
  if (problem) fail(problem.message);
  else show(found);
}

async function submit() {
  if (!graph) return fail("Drop a file, or name a model of the zoo.");
  const said = JSON.stringify({ task: at("task").value, data: at("data").value });
  // The graph goes as it is: numbers in it may be longer than a script can hold.
  await put(`{"graph":${graph},${said.slice(1)}`);
}

/** What the sliders say. */
function chosen() {
  const said = new FormData(sizes);
  const { model, task, data, width } = Object.fromEntries(said);
  return { model, task, data, width: Number(width ?? 1), blocks: said.getAll("blocks").map(Number) };
}

function resize() {
  const asked = chosen();
  const words = { ...asked, blocks: asked.blocks.join(",") };
  const parts = new URLSearchParams(Object.entries(words).filter(([, value]) => value !== ""));
  history.replaceState(null, "", `${location.pathname}?${parts}`);
  put(JSON.stringify(asked));
}

form.addEventListener("submit", (event) => {
  if (at("of-zoo").value.trim()) return; // the service renders the answer
  event.preventDefault();
  submit();
});
file.addEventListener("change", () => take(file.files[0]));
at("of-zoo").addEventListener("input", () => {
  graph = "";
  at("chosen").value = "";
});
for (const kind of ["dragover", "dragleave", "drop"]) {
  drop.addEventListener(kind, (event) => {
    event.preventDefault();
    drop.classList.toggle("over", kind === "dragover");
    if (kind === "drop") take(event.dataTransfer.files[0]);
  });
}
let waiting = 0;
sizes?.addEventListener("input", ({ target }) => {
  target.parentElement.querySelector("output").value = target.value + target.dataset.unit;
  clearTimeout(waiting);
  waiting = setTimeout(resize, PAUSE);
});
sizes?.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(waiting);
  resize();
});
