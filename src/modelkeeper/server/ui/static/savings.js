// What was saved, week by week: a line for each kind of evidence, which are never added up.
import { chart } from "./charts.js";
import { duration } from "./dom.js";

const KINDS = ["measured", "matched", "estimated"];
const box = document.getElementById("weeks"); // null: nothing was started

if (box) {
  const weeks = JSON.parse(box.dataset.weeks);
  const names = new Map(weeks.map(({ at, name }) => [at, name]));
  const x = { name: "week", time: "days", write: (at) => names.get(at) ?? "" };
  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  const axes = {
    steps: { name: "steps saved", zero: true, write: (value) => whole.format(value) },
    seconds: { name: "time saved", zero: true, write: duration },
  };
  const charts = {}; // made when somebody looks at them
  const show = (of) => {
    if (!charts[of]) {
      charts[of] = document.createElement("div");
      box.append(charts[of]);
      const lines = KINDS.map((kind) => ({ name: kind, points: weeks.map((week) => [week.at, week[kind][of]]), dashed: kind === "estimated" }));
      chart(charts[of], { x, y: axes[of], lines });
    }
    for (const [name, made] of Object.entries(charts)) made.hidden = name !== of;
  };
  const choice = document.getElementById("weeks-of");
  choice.addEventListener("change", (event) => show(event.target.value));
  choice.hidden = false;
  show(choice.querySelector(":checked").value); // a browser may remember what was chosen before
  box.dataset.ready = "";
}
