// The zoo from above: points that are coloured, moved, zoomed and chosen by a rectangle; and the same as a table.
import { ask, element } from "./dom.js";
import { Plane } from "./plane.js";

const ROWS = 40; // of the table
const COLOURS = 8;
const at = (name) => document.getElementById(name);
const [frame, canvas, tip, table, legend] = ["map", "map-canvas", "map-tip", "map-rows", "map-legend"].map(at);
const [colour, lineage, brush] = ["map-colour", "map-lineage", "map-brush"].map(at);
const plane = new Plane(canvas);

let map; // what the service said
let palette = []; // of each kind of point: its dot in the legend, and what it means

// -- colours --------------------------------------------------------------------------------------

/** Which colour each point has, and what they mean. */
function paint() {
  const by = colour.value;
  if (by === "score") {
    plane.kinds = map.rank.map((rank) => (rank < 0 ? 5 : Math.min(4, Math.floor(rank / 20))));
    plane.colours = [0, 1, 2, 3, 4].map((step) => `--r${step}`);
    palette = plane.colours.map((_, step) => ({ dot: `rank-${step}`, means: `better than ${20 * step}–${20 * step + 20} % of its peers` }));
    palette.push({ dot: "dot-other", means: "no score, or no peers" });
  } else {
    const words = { task: map.tasks, data: map.data_sets, framework: map.frameworks, family: map.families }[by];
    const shown = words.length > COLOURS ? COLOURS - 1 : words.length;
    plane.kinds = map[by].map((word) => (word < 0 || word >= shown ? shown : word));
    plane.colours = words.slice(0, shown).map((_, place) => `--c${place}`);
    palette = words.slice(0, shown).map((word, place) => ({ dot: `dot-${place}`, means: word || "none said" }));
    palette.push({ dot: "dot-other", means: "others" });
  }
  plane.colours.push("--other");
  const counts = palette.map(() => 0);
  for (const kind of plane.kinds) counts[kind] += 1;
  const entries = palette.map(({ dot, means }, kind) =>
    counts[kind] ? element("li", {}, element("span", { class: `dot ${dot}` }), element("bdi", {}, means), element("small", {}, counts[kind].toLocaleString("en"))) : null,
  );
  legend.replaceChildren(...entries.filter(Boolean));
  frame.dataset.colour = by;
}

// -- the table ------------------------------------------------------------------------------------

const score = (place) => (map.value[place] === null ? "" : `${map.value[place]} ${map.metrics[map.metric[place]] ?? ""}`);
const count = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
const models = (places) => places.reduce((sum, place) => sum + map.models[place], 0);

/** Points as a table: those that are chosen, or else what is nearest to the middle. */
function list() {
  const all = plane.chosen ? [...plane.chosen] : plane.seen();
  const best = (one, other) => map.rank[other] - map.rank[one];
  const shown = plane.chosen ? [...all].sort(best).slice(0, ROWS) : plane.nearest([...all], ROWS);
  at("map-title").textContent = plane.chosen ? "Selected" : "Nearest to the middle";
  const words = plane.chosen ? `${count(all.length, "architecture")}, ${count(models(all), "model")}` : `${count(all.length, "architecture")} in view`;
  at("map-count").textContent = all.length > shown.length ? `${words}; ${shown.length} are listed` : words;
  table.replaceChildren(...shown.map(row));
  frame.dataset.listed = shown.length;
}

function row(place) {
  const name = element("a", { class: "name", href: `/ui/models/${encodeURIComponent(map.id[place])}` }, element("bdi", {}, map.name[place] || "nameless"));
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, element("span", { class: `dot ${palette[plane.kinds[place]].dot}` }), name),
    element("td", {}, element("bdi", {}, map.tasks[map.task[place]] ?? "…")),
    element("td", {}, element("bdi", {}, map.data_sets[map.data[place]] ?? "…")),
    element("td", { class: "num" }, element("bdi", {}, score(place) || "–")),
    element("td", { class: "num" }, map.models[place].toLocaleString("en")),
    element("td", {}, element("bdi", {}, map.families[map.family[place]] ?? "")),
  );
}

let waiting = 0;
plane.addEventListener("moved", () => {
  frame.dataset.scale = (plane.view.scale / plane.whole).toFixed(3);
  clearTimeout(waiting);
  waiting = setTimeout(list, 120);
});

// -- choosing -------------------------------------------------------------------------------------

/** Choose points: few by a model of each, many by a part of the map; the table of the zoo shows the same. */
function choose(places, part) {
  plane.chosen = places.length ? new Set(places) : null;
  frame.dataset.chosen = places.length;
  const link = at("map-show");
  link.hidden = at("map-clear").hidden = !places.length;
  const few = places.length <= Number(frame.dataset.most);
  const named = few ? `architecture=${places.map((place) => map.id[place]).join(",")}` : `map=${[map.mark, ...part].join(",")}`;
  link.setAttribute("href", `/ui/models?${named}`);
  plane.refresh();
  list();
}

function chooseWithin(...box) {
  const { part, places } = plane.within(...box);
  choose(places, part);
}

function hover(place) {
  if (place === plane.hovered) return;
  plane.hovered = place;
  canvas.classList.toggle("pointing", place >= 0);
  tip.hidden = place < 0;
  plane.redraw();
  if (place < 0) return;
  const rank = map.rank[place] < 0 ? "" : `better than ${map.rank[place]} % of its peers`;
  const lines = [
    [map.tasks[map.task[place]], map.data_sets[map.data[place]]].filter(Boolean).join(" · "),
    [score(place), rank].filter(Boolean).join(", "),
    map.models[place] > 1 ? `the best of ${map.models[place].toLocaleString("en")} models` : "",
    [map.frameworks[map.framework[place]], map.families[map.family[place]]].filter(Boolean).join(" · "),
  ];
  const name = element("b", {}, element("bdi", {}, map.name[place] || "nameless"));
  tip.replaceChildren(name, ...lines.filter(Boolean).map((line) => element("span", {}, element("bdi", {}, line))));
  const [x, y] = plane.at(place);
  const left = x + 14 + tip.offsetWidth > plane.size.width ? Math.max(4, x - 14 - tip.offsetWidth) : x + 14;
  const top = Math.max(4, Math.min(y - 10, plane.size.height - tip.offsetHeight - 4));
  tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
}

// -- hands ----------------------------------------------------------------------------------------

const fingers = new Map(); // where each pointer that is down is
let drag = null;

canvas.addEventListener("pointerdown", (event) => {
  if (event.button || !map) return;
  canvas.setPointerCapture(event.pointerId);
  fingers.set(event.pointerId, [event.offsetX, event.offsetY]);
  const brushes = event.shiftKey || brush.getAttribute("aria-pressed") === "true";
  drag = fingers.size === 1 ? { x: event.offsetX, y: event.offsetY, brushes, far: false } : null;
  plane.box = null;
});

canvas.addEventListener("pointermove", (event) => {
  const [x, y] = [event.offsetX, event.offsetY];
  const before = fingers.get(event.pointerId);
  if (!before) return hover(plane.pointAt(x, y));
  const others = [...fingers].filter(([finger]) => finger !== event.pointerId).map(([, place]) => place);
  fingers.set(event.pointerId, [x, y]);
  if (others.length) {
    const [[otherX, otherY]] = others;
    const grown = Math.hypot(x - otherX, y - otherY) / Math.max(1, Math.hypot(before[0] - otherX, before[1] - otherY));
    return plane.zoom(grown, (x + otherX) / 2, (y + otherY) / 2);
  }
  if (!drag) return undefined;
  drag.far ||= Math.hypot(x - drag.x, y - drag.y) > 4;
  if (!drag.far) return undefined;
  hover(-1);
  if (!drag.brushes) {
    canvas.classList.add("dragging");
    return plane.pan(x - before[0], y - before[1]);
  }
  plane.box = [Math.min(x, drag.x), Math.min(y, drag.y), Math.abs(x - drag.x), Math.abs(y - drag.y)];
  return plane.redraw();
});

function released(event) {
  fingers.delete(event.pointerId);
  canvas.classList.remove("dragging");
  const [was, drawn] = [drag, plane.box];
  drag = plane.box = null;
  if (!was || event.type === "pointercancel") return plane.redraw();
  if (drawn) return chooseWithin(...drawn);
  if (was.far) return undefined;
  const place = plane.pointAt(event.offsetX, event.offsetY);
  hover(place);
  return choose(place < 0 ? [] : [place]);
}

canvas.addEventListener("pointerup", released);
canvas.addEventListener("pointercancel", released);
canvas.addEventListener("pointerleave", () => hover(-1));
const byWheel = (event) => {
  event.preventDefault();
  hover(-1);
  plane.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.offsetX, event.offsetY);
};
canvas.addEventListener("wheel", byWheel, { passive: false });

const KEYS = {
  ArrowLeft: () => plane.pan(60, 0),
  ArrowRight: () => plane.pan(-60, 0),
  ArrowUp: () => plane.pan(0, 60),
  ArrowDown: () => plane.pan(0, -60),
  "+": () => plane.zoom(1.5),
  "=": () => plane.zoom(1.5),
  "-": () => plane.zoom(1 / 1.5),
  0: () => plane.fit(),
  Enter: () => choose(plane.nearest(map.x.map((_, place) => place), 1)),
  Escape: () => choose([]),
};
canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key]();
});

at("map-in").addEventListener("click", KEYS["+"]);
at("map-out").addEventListener("click", KEYS["-"]);
at("map-fit").addEventListener("click", KEYS[0]);
at("map-view").addEventListener("click", () => chooseWithin(0, 0, plane.size.width, plane.size.height));
at("map-clear").addEventListener("click", () => choose([]));
brush.addEventListener("click", () => {
  const on = brush.getAttribute("aria-pressed") !== "true";
  brush.setAttribute("aria-pressed", String(on));
  canvas.classList.toggle("brushing", on);
});

/** What is chosen stands in the address. */
function remember() {
  const query = new URLSearchParams({ ...(colour.value === "score" ? {} : { colour: colour.value }), ...(lineage.checked ? { lineage: 1 } : {}) });
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
}

colour.addEventListener("change", () => {
  paint();
  remember();
  plane.refresh();
  list();
});
lineage.addEventListener("change", () => {
  plane.lineage = lineage.checked;
  remember();
  plane.refresh();
});

// -- the map itself -------------------------------------------------------------------------------

const SAYS = {
  drawing: "The map is being drawn, in the background: every architecture is aligned with some landmarks. This page asks again by itself.",
  failed: "The map cannot be drawn just now; the log of the service says why. This page asks again by itself.",
  late: "The networks of this zoo are so large that no map was ready in time. This page asks again by itself.",
  elsewhere: "The search index of this zoo lies in shards, outside of this service, which therefore draws no map.",
};

function tell() {
  const all = map.x.map((_, place) => place);
  at("map-words").textContent = all.length ? `${count(all.length, "architecture")} of ${count(models(all), "model")}` : "There is no model to show: the zoo is empty, or none may be seen.";
  at("map-body").hidden = !all.length;
  const trust = `A plane cannot hold all distances: stress ${map.stress.toFixed(2)}, rank correlation of seen and real distances ${map.correlation.toFixed(2)}.`;
  at("map-trust").textContent = (all.length > 3 ? trust : "") + (map.cut ? " There is more than is shown." : "");
  frame.dataset.points = all.length;
}

async function begin() {
  for (let pause = 500; ; pause = Math.min(5000, 1.5 * pause)) {
    map = await ask(frame.dataset.source);
    if (map.state === "ready") break;
    at("map-words").textContent = SAYS[map.state] ?? map.state;
    frame.dataset.state = map.state;
    if (map.state === "elsewhere") return;
    await new Promise((done) => setTimeout(done, pause));
  }
  tell();
  if (!map.x.length) return;
  paint();
  plane.lineage = lineage.checked;
  plane.show(map);
  list();
}

try {
  await begin();
  frame.dataset.ready = "true";
} catch (problem) {
  at("map-words").replaceChildren(element("span", { class: "problem", role: "alert" }, problem.message));
}
