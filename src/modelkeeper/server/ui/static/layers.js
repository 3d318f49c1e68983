// The layers of one model, as its page shows them.
import { ask, count, element } from "./dom.js";
import { Rows } from "./rows.js";

const box = document.getElementById("layers");

function draw(row, index) {
  const attributes = Object.entries(row.attributes).map(([name, value]) => `${name}=${value}`).join(" ");
  const parts = row.tensors.map(([role, shape]) => `${role} ${shape}`).join(", ");
  return element(
    "div",
    { class: "row", title: [row.name, parts, attributes].filter(Boolean).join("\n") },
    element("span", { class: "n" }, String(index)),
    element("span", {}, row.name),
    element("span", { class: "kind" }, row.kind),
    element("span", { class: "shape" }, row.shapes),
    element("span", { class: "shape" }, attributes),
    element("span", { class: "num" }, row.parameters ? count(row.parameters) : ""),
  );
}

try {
  const { rows, notes } = await ask(box.dataset.source);
  new Rows(box, (index) => draw(rows[index], index)).show(rows.length);
  for (const note of notes) box.after(element("p", { class: "hint" }, `Note: ${note}`));
} catch (problem) {
  box.replaceChildren(element("p", { class: "problem", role: "alert" }, problem.message));
}
