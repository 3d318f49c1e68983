// How do figures become lines? Drawn by uPlot, in the colours of the page, read by mouse, by arrow keys, or as a table.
//
//   chart(document.getElementById("curve"), {
//     x: { name: "step" }, y: { name: "accuracy" },
//     lines: [{ name: "warm", points: [[0, 0.4], [100, 0.8]] }, { name: "cold twin", points: [[0, 0.1], [120, 0.7]], dashed: true }],
//   });
//
// Names are whatever somebody registered, and go into the page as text. Nothing here moves by itself. Pages that use it
// link vendor/uPlot.min.css and charts.css.
import uPlot from "./vendor/uPlot.esm.js";
import { element } from "./dom.js";

const COLOURS = ["--accent", "--inserted", "--copied", "--narrowed", "--joined", "--bad"]; // tokens of base.css, by day and by night
const DASHES = [6, 4];
const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Open Sans', sans-serif";
const HEIGHT = 240;
const NUMBERS = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const DAYS = new Intl.DateTimeFormat("en-CA", { timeZone: "UTC" });
const MINUTES = new Intl.DateTimeFormat("en-CA", { timeZone: "UTC", dateStyle: "short", timeStyle: "short", hourCycle: "h23" });

const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Moments below an axis: days, or hours and minutes, with the day where one begins. */
function ticks(moments) {
  const hours = moments.length > 1 && moments[1] - moments[0] < 86400;
  return moments.map((at) => {
    const [day, time] = new Date(at * 1000).toISOString().split("T");
    return hours && !time.startsWith("00:00") ? time.slice(0, 5) : day.slice(5);
  });
}

/** How values of an axis are written: `{name, unit, time: "days" | "minutes", write}`, all but the name optional. */
function writer(axis) {
  if (axis.write) return axis.write;
  if (axis.time) return (value) => (axis.time === "days" ? DAYS : MINUTES).format(value * 1000).replace(",", "");
  return (value) => NUMBERS.format(value) + (axis.unit ? ` ${axis.unit}` : "");
}

/**
 * Lines in a box: a plot, a legend with the values where one points, and all of it as a table.
 *
 * `lines`: [{name, points: [[x, y], …] by x, colour: a token, dashed}]; a y of null is a gap. `y.zero`: the axis begins at 0.
 */
export class Chart {
  constructor(box, { x, y, lines, height = HEIGHT }) {
    Object.assign(this, { box, x, y, height, lines: [], at: null, plot: null });
    this.writeX = writer(x);
    this.writeY = writer(y);
    this.canvas = element("div", { class: "plot", tabindex: 0, role: "group", "aria-roledescription": "chart" });
    this.legend = element("ul", { class: "chart-legend", "aria-live": "polite" });
    this.table = element("details", { class: "chart-table" }, element("summary", {}, "As a table"));
    box.classList.add("chart");
    box.replaceChildren(this.canvas, this.legend, this.table);
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    this.canvas.addEventListener("blur", () => this.#point(null));
    this.table.addEventListener("toggle", () => this.#tabulate());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.plot?.redraw(false));
    new ResizeObserver(() => requestAnimationFrame(() => this.#fit())).observe(this.canvas);
    this.show(lines);
  }

  /** Draw these lines from now on. */
  show(lines) {
    const alike = this.plot !== null && lines.length === this.lines.length;
    this.lines = lines.map((line, index) => ({ colour: COLOURS[index % COLOURS.length], ...line }));
    const tables = lines.map(({ points }) => [points.map(([at]) => at), points.map(([, value]) => value)]);
    this.data = tables.length ? uPlot.join(tables) : [[]];
    this.at = null;
    if (alike) this.plot.setData(this.data);
    else this.#build();
    const said = this.lines.map((line) => `${line.name}, ${this.#summary(line)}`).join("; ");
    this.canvas.setAttribute("aria-label", `${this.y.name} by ${this.x.name}. ${said}. Arrow keys read the values.`);
    this.#read();
    this.#tabulate();
  }

  #build() {
    this.plot?.destroy();
    const axis = { stroke: () => token("--dim"), font: FONT, labelFont: FONT, grid: { stroke: () => token("--line"), width: 1 }, ticks: { show: false } };
    const unit = this.y.unit ? ` (${this.y.unit})` : "";
    const short = this.y.write ?? ((value) => NUMBERS.format(value));
    const width = (texts) => 14 + 6.7 * Math.max(3, ...(texts ?? []).map((text) => text.length));
    const options = {
      width: Math.max(120, this.canvas.clientWidth),
      height: this.height,
      legend: { show: false },
      padding: [10, 22, 0, 0],
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      scales: { x: { time: Boolean(this.x.time) }, y: { range: (_, least, most) => this.#range(least, most) } },
      axes: [
        { ...axis, label: this.x.name, labelSize: 20, size: 28, space: 70, values: this.x.time ? (_, at) => ticks(at) : (_, at) => at.map((value) => NUMBERS.format(value)) },
        { ...axis, label: this.y.name + unit, labelSize: 22, size: (_, texts) => width(texts), values: (_, at) => at.map(short) },
      ],
      series: [{}, ...this.lines.map((line, index) => this.#series(line, index))],
      hooks: { setCursor: [(plot) => this.#read(plot.cursor.idx)] },
    };
    this.plot = new uPlot(options, this.data, this.canvas);
  }

  #series({ dashed }, index) {
    const stroke = () => token(this.lines[index].colour);
    return { stroke, width: 2, dash: dashed ? DASHES : undefined, points: { fill: () => token("--card"), stroke, size: 6 } };
  }

  /** From where to where an axis goes: a little beyond the values, to 0 if asked for, and never of no length. */
  #range(least, most) {
    if (least === null || most === null) return [0, 1];
    const beyond = (most - least) * 0.06 || Math.abs(most) * 0.1 || 1;
    const low = this.y.zero ? Math.min(0, least) : least - beyond;
    return [low, Math.max(most + beyond, low + beyond)];
  }

  #fit() {
    const width = this.canvas.clientWidth;
    if (width && width !== this.plot.width) this.plot.setSize({ width, height: this.height });
  }

  #summary({ points }) {
    const known = points.filter(([, value]) => value !== null);
    if (!known.length) return "no values";
    const values = known.map(([, value]) => value);
    const [first, last] = [known[0], known[known.length - 1]];
    return `${this.writeY(first[1])} at ${this.writeX(first[0])}, ${this.writeY(last[1])} at ${this.writeX(last[0])}, between ${this.writeY(Math.min(...values))} and ${this.writeY(Math.max(...values))}`;
  }

  /** The legend: each line with its value where one points, or its last. */
  #read(at = null) {
    this.at = at ?? null;
    const parts = this.lines.map((line, index) => {
      const values = this.data[index + 1] ?? [];
      const where = this.at ?? values.findLastIndex((value) => value !== null && value !== undefined);
      const value = values[where];
      const swatch = element("span", { class: line.dashed ? "swatch dashed" : "swatch" });
      swatch.style.borderTopColor = `var(${line.colour})`;
      const known = value !== null && value !== undefined;
      return element("li", {}, swatch, element("bdi", {}, line.name), " ", element("b", {}, known ? this.writeY(value) : "–"));
    });
    const where = this.at === null ? "last" : `at ${this.writeX(this.data[0][this.at])}`;
    this.legend.replaceChildren(...parts, element("li", { class: "where" }, where));
  }

  #key(event) {
    const last = this.data[0].length - 1;
    if (last < 0) return;
    const steps = { ArrowRight: (this.at ?? -1) + 1, ArrowLeft: (this.at ?? last + 1) - 1, Home: 0, End: last, Escape: null };
    if (!(event.key in steps) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.#point(steps[event.key] === null ? null : Math.max(0, Math.min(last, steps[event.key])));
  }

  #point(at) {
    if (at === null) this.plot.setCursor({ left: -10, top: -10 });
    else this.plot.setCursor({ left: this.plot.valToPos(this.data[0][at], "x"), top: 0 });
    this.#read(at);
  }

  /** All values, once somebody opens the table. */
  #tabulate() {
    this.table.querySelector(".scroll")?.remove();
    if (!this.table.open) return;
    const head = [this.x.name, ...this.lines.map(({ name }) => name)];
    const [places, ...columns] = this.data;
    const cell = (value) => element("td", { class: "num" }, value === null || value === undefined ? "" : this.writeY(value));
    const rows = places.map((at, row) => element("tr", {}, element("th", { scope: "row" }, this.writeX(at)), columns.map((column) => cell(column[row]))));
    this.table.append(
      element(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": `${this.y.name} by ${this.x.name}` },
        element("table", { class: "rows small" }, element("thead", {}, element("tr", {}, head.map((name, index) => element("th", { scope: "col", class: index ? "num" : null }, element("bdi", {}, name))))), element("tbody", {}, rows)),
      ),
    );
  }
}

/** A chart in a box, as `Chart` says. */
export const chart = (box, options) => new Chart(box, options);
