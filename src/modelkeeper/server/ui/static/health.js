// How busy was the service? Lines of what was counted by minutes, as far back as the address says.
import { chart } from "./charts.js";
import { ask, element } from "./dom.js";

const HEIGHT = 190;
const box = document.getElementById("activity"); // null: for administrators alone

function draw({ title, y, unit, lines }) {
  const place = element("div");
  box.append(element("section", {}, element("h3", {}, title), place));
  if (lines.some(({ points }) => points.some((point) => point[1] !== null))) {
    chart(place, { x: { name: "UTC", time: "minutes" }, y: { name: y, unit, zero: true }, lines, height: HEIGHT });
  } else {
    place.append(element("p", { class: "hint" }, "Nobody asked anything in this time."));
  }
}

if (box) {
  try {
    const { charts } = await ask(box.dataset.source);
    box.replaceChildren();
    charts.forEach(draw);
  } catch (problem) {
    box.replaceChildren(element("p", { class: "problem", role: "alert" }, problem.message));
  }
  box.dataset.ready = "";
}
