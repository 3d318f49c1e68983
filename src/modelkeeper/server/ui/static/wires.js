// How does data flow between rows? Wires in lanes, as `git log --graph` draws them; the service laid them out.
import { drawn } from "./dom.js";
import { HEIGHT } from "./rows.js";

const PITCH = 9; // from lane to lane
const HALF = HEIGHT / 2;
const x = (lane) => 6 + PITCH * lane;

/** How wide so many lanes are. */
export function breadth(lanes) {
  return x(lanes - 1) + 6;
}

function lanes(some) {
  const found = [];
  for (let lane = 0; some >> lane; lane++) if ((some >> lane) & 1) found.push(lane);
  return found;
}

/** A line from one lane to another, from height to height. */
function line(from, to, top, bottom) {
  if (from === to) return `M${x(from)} ${top}V${bottom}`;
  const middle = (top + bottom) / 2;
  return `M${x(from)} ${top}C${x(from)} ${middle} ${x(to)} ${middle} ${x(to)} ${bottom}`;
}

function picture(...parts) {
  return drawn("svg", { class: "wires", height: HEIGHT, "aria-hidden": "true" }, ...parts);
}

/** What runs into a row, past it and out of it, on one side. */
export function wires(side, row) {
  const { lane, into, through, out } = side.wires;
  const at = lane[row];
  const parts = [
    ...lanes(through[row]).map((passing) => line(passing, passing, 0, HEIGHT)),
    ...lanes(into[row]).map((coming) => line(coming, at, 0, HALF)),
    ...lanes(out[row]).map((leaving) => line(at, leaving, HALF, HEIGHT)),
  ];
  const dot = at < 0 ? "" : drawn("circle", { cx: x(at), cy: HALF, r: 3.5 });
  return picture(parts.length ? drawn("path", { d: parts.join("") }) : "", dot);
}

/** What runs past hidden rows from `first` up to `last`; what ends or begins among them is dashed. */
export function hiddenWires(side, first, last) {
  const { into, through, out } = side.wires;
  let past = -1;
  for (let row = first; row <= last && past; row++) past &= through[row];
  const before = (into[first] | through[first]) & ~past;
  const after = (through[last] | out[last]) & ~past;
  const gone = [...lanes(before).map((lane) => line(lane, lane, 0, HALF - 3)), ...lanes(after).map((lane) => line(lane, lane, HALF + 3, HEIGHT))];
  const whole = lanes(past).map((lane) => line(lane, lane, 0, HEIGHT));
  return picture(whole.length ? drawn("path", { d: whole.join("") }) : "", gone.length ? drawn("path", { class: "hidden", d: gone.join("") }) : "");
}
