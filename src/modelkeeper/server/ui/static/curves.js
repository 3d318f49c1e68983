// How did the training of a model go? By step or by time, beside a cold run of the same thing or beside its parent.
import { chart } from "./charts.js";
import { ask, duration, element } from "./dom.js";

const PLACES = { step: 0, seconds: 1 }; // in a point, before its score
const LONGEST = 60; // letters of a metric that fit beside an axis
const box = document.getElementById("curve"); // null: nobody said how it went
const short = (name) => ([...name].length > LONGEST ? `${[...name].slice(0, LONGEST).join("")}…` : name);

/** Points in the order of their axis; a training that went back says last what counts. */
function along(points, by) {
  const found = new Map(points.map((point) => [point[PLACES[by]], point[2]]));
  return [...found].sort(([one], [other]) => one - other);
}

function link(told) {
  return element("a", { href: `/ui/models/${encodeURIComponent(told.model)}` }, element("bdi", {}, told.name));
}

/** What the dashed line is, and which of both was earlier. */
function words(told) {
  if (told.beside === null) return [told.cold ? "It started cold." : "Nothing to compare it with has a curve by this metric: no cold run of the same thing, no parent."];
  if (told.kind === "parent") return ["Dashed: its parent, ", link(told), ". No cold run of the same thing is known."];
  const which = told.twins > 1 ? `the best of ${told.twins} cold runs` : "a cold run";
  const said = [`Dashed: ${which} of the same architecture, data and task, `, link(told), "."];
  if (told.earlier !== null) {
    const { steps, seconds } = told.earlier;
    const side = (value) => (value < 0 ? "later" : "earlier");
    const count = `${Math.abs(steps).toLocaleString("en")} step${Math.abs(steps) === 1 ? "" : "s"}`;
    const both = side(steps) === side(seconds) ? `${count} and ${duration(Math.abs(seconds))} ${side(steps)}` : `${count} ${side(steps)}, ${duration(Math.abs(seconds))} ${side(seconds)}`;
    said.push(` This one reached the best score that both have ${both}.`);
  }
  return said;
}

function draw(told) {
  const y = { name: short(told.curve.metric) + (told.curve.lower_is_better ? ", lower is better" : "") };
  const axes = { step: { name: "step" }, seconds: { name: "time", write: duration } };
  const charts = {}; // made when somebody looks at them
  const show = (by) => {
    if (!charts[by]) {
      charts[by] = element("div");
      box.append(charts[by]);
      const lines = [{ name: box.dataset.name, points: along(told.curve.points, by) }];
      if (told.beside) lines.push({ name: `${told.kind}: ${told.name}`, points: along(told.beside.points, by), dashed: true });
      chart(charts[by], { x: axes[by], y, lines });
    }
    for (const [name, made] of Object.entries(charts)) made.hidden = name !== by;
  };
  const choice = document.getElementById("curve-by");
  choice.addEventListener("change", (event) => show(event.target.value));
  choice.hidden = false;
  box.replaceChildren();
  show(choice.querySelector(":checked").value);
  box.after(element("p", { class: "hint", id: "curve-words" }, ...words(told)));
}

if (box) {
  try {
    draw(await ask(box.dataset.source));
  } catch (problem) {
    box.replaceChildren(element("p", { class: "problem", role: "alert" }, problem.message));
  }
  box.dataset.ready = "";
}
