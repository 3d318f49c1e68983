// A plane with points on a canvas: what of it is seen, how it is drawn, and which point is meant.
//
// Points, lines and names are drawn once, apart from what is seen; that is copied to the window, moved and
// scaled as the hand does, with the few things that follow the pointer above it. So thousands move smoothly.

const NEAR = 9; // pixels within which a point is meant
const [TOO_FAR, TOO_NEAR] = [0.5, 400]; // zoom, against that which shows all
const NAMED = 40; // points that can be seen at once and still have names
const HEADS = 400; // lines, and still have heads
const MANY = 3000; // points that are not all drawn anew while they move ...
const STILL = 120; // ... but so many milliseconds after

export class Plane extends EventTarget {
  map = null; // what the service said
  kinds = []; // of each point: which colour
  colours = []; // of each kind: a variable of the style sheet
  chosen = null; // the places of chosen points; the others fade
  hovered = -1;
  box = null; // a rectangle that is being drawn
  lineage = false;
  whole = 1; // the scale that shows all
  view = { x: 0, y: 0, scale: 1 }; // what is in the middle, and pixels for each unit
  size = { width: 0, height: 0 };
  #asked = false; // is a frame on its way?
  #base = document.createElement("canvas"); // points, lines and names
  #based = null; // the view that these are drawn in; null: they have changed
  #settling = 0;

  constructor(canvas) {
    super();
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    for (const event of ["focus", "blur"]) canvas.addEventListener(event, () => this.redraw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.refresh());
    new ResizeObserver(() => this.#resize()).observe(canvas);
  }

  /** Show a map, all of it. */
  show(map) {
    this.map = map;
    this.size = { width: 0, height: 0 };
    this.#resize();
  }

  #resize() {
    const before = this.size.width;
    this.size = { width: this.canvas.clientWidth, height: this.canvas.clientHeight };
    if (this.map && !before && this.size.width) this.fit();
    this.refresh();
  }

  // -- where things are ---------------------------------------------------------------------------

  across(x) {
    return (x - this.view.x) * this.view.scale + this.size.width / 2;
  }

  down(y) {
    return this.size.height / 2 - (y - this.view.y) * this.view.scale;
  }

  /** Where a point is in the window. */
  at(place) {
    return [this.across(this.map.x[place]), this.down(this.map.y[place])];
  }

  radius(place) {
    const many = this.map.x.length;
    return Math.min(11, (many > 4000 ? 2.2 : many > 400 ? 3.2 : 4.6) + 0.8 * Math.log2(this.map.models[place]));
  }

  inside(place) {
    const [x, y] = this.at(place);
    return x >= -12 && y >= -12 && x <= this.size.width + 12 && y <= this.size.height + 12;
  }

  seen() {
    const places = [];
    for (let place = 0; place < this.map.x.length; place++) if (this.inside(place)) places.push(place);
    return places;
  }

  /** The point that is meant at a place of the window; -1: none. */
  pointAt(x, y) {
    let [found, least] = [-1, Infinity];
    for (let place = 0; place < this.map.x.length; place++) {
      const [left, top] = this.at(place);
      const far = Math.hypot(left - x, top - y) - this.radius(place);
      if (far < least) [found, least] = [place, far];
    }
    return least <= NEAR ? found : -1;
  }

  /** Those of some points that are nearest to the middle. */
  nearest(places, most) {
    const far = (place) => (this.map.x[place] - this.view.x) ** 2 + (this.map.y[place] - this.view.y) ** 2;
    return places.sort((one, other) => far(one) - far(other)).slice(0, most);
  }

  /** A rectangle of the window as a part of the map (left, bottom, right, top), and the points in it. */
  within(left, top, width, height) {
    const x = (value) => this.view.x + (value - this.size.width / 2) / this.view.scale;
    const y = (value) => this.view.y - (value - this.size.height / 2) / this.view.scale;
    const part = [Math.floor(x(left)), Math.floor(y(top + height)), Math.ceil(x(left + width)), Math.ceil(y(top))];
    const places = [];
    for (let place = 0; place < this.map.x.length; place++) {
      const [here, there] = [this.map.x[place], this.map.y[place]];
      if (here >= part[0] && here <= part[2] && there >= part[1] && there <= part[3]) places.push(place);
    }
    return { part, places };
  }

  // -- moving -------------------------------------------------------------------------------------

  fit() {
    let [left, right, bottom, top] = [Infinity, -Infinity, Infinity, -Infinity];
    for (let place = 0; place < this.map.x.length; place++) {
      left = Math.min(left, this.map.x[place]);
      right = Math.max(right, this.map.x[place]);
      bottom = Math.min(bottom, this.map.y[place]);
      top = Math.max(top, this.map.y[place]);
    }
    const least = this.map.unit / 20; // a zoo of one is not infinitely near
    const room = (length, edge) => Math.max(40, length - edge);
    const scales = [room(this.size.width, 90) / Math.max(least, right - left), room(this.size.height, 70) / Math.max(least, top - bottom)];
    this.whole = Math.min(...scales);
    this.view = { x: (left + right) / 2, y: (bottom + top) / 2, scale: this.whole };
    this.#moved();
  }

  /** Zoom, so that what is at a place of the window stays there. */
  zoom(factor, x = this.size.width / 2, y = this.size.height / 2) {
    const { view, whole } = this;
    const scale = Math.min(whole * TOO_NEAR, Math.max(whole * TOO_FAR, view.scale * factor));
    view.x += (x - this.size.width / 2) * (1 / view.scale - 1 / scale);
    view.y -= (y - this.size.height / 2) * (1 / view.scale - 1 / scale);
    view.scale = scale;
    this.#moved();
  }

  pan(x, y) {
    this.view.x -= x / this.view.scale;
    this.view.y += y / this.view.scale;
    this.#moved();
  }

  #moved() {
    if (this.map.x.length <= MANY) this.#based = null;
    else {
      clearTimeout(this.#settling);
      this.#settling = setTimeout(() => this.refresh(), STILL);
    }
    this.redraw();
    this.dispatchEvent(new Event("moved"));
  }

  // -- drawing ------------------------------------------------------------------------------------

  /** Draw all of it again, because of what is shown or how. */
  refresh() {
    this.#based = null;
    this.redraw();
  }

  /** Draw what follows the pointer. */
  redraw() {
    if (this.#asked || !this.map) return;
    this.#asked = true;
    requestAnimationFrame(() => {
      this.#asked = false;
      this.#draw();
    });
  }

  #draw() {
    const { pen, size, canvas, view } = this;
    const style = getComputedStyle(document.documentElement);
    const ink = (name) => style.getPropertyValue(name).trim();
    const dots = window.devicePixelRatio || 1;
    if (!size.width || !size.height) return;
    for (const each of [canvas, this.#base]) {
      if (each.width !== Math.round(size.width * dots)) each.width = Math.round(size.width * dots);
      if (each.height !== Math.round(size.height * dots)) each.height = Math.round(size.height * dots);
    }
    if (!this.#based) this.#drawBase(ink, dots);
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    pen.clearRect(0, 0, size.width, size.height);
    const grown = view.scale / this.#based.scale;
    const [width, height] = [size.width * grown, size.height * grown];
    pen.drawImage(this.#base, this.across(this.#based.x) - width / 2, this.down(this.#based.y) - height / 2, width, height);
    if (this.hovered >= 0) this.#ring(ink("--ink"));
    this.#scale(ink("--dim"));
    if (canvas.matches(":focus-visible")) this.#middle(ink("--dim"));
    if (this.box) {
      pen.strokeStyle = pen.fillStyle = ink("--accent");
      pen.lineWidth = 1;
      pen.strokeRect(...this.box);
      pen.globalAlpha = 0.12;
      pen.fillRect(...this.box);
      pen.globalAlpha = 1;
    }
  }

  #drawBase(ink, dots) {
    const pen = this.#base.getContext("2d");
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    pen.clearRect(0, 0, this.size.width, this.size.height);
    this.#based = { ...this.view };
    const seen = this.seen();
    if (this.lineage) this.#lines(pen, ink("--dim"));
    this.#points(pen, seen, ink);
    if (seen.length <= NAMED) this.#names(pen, seen, ink);
  }

  /** Lines from parents to children, with a head where few are to be seen. */
  #lines(pen, ink) {
    const { chosen } = this;
    const seen = this.map.lines.filter(([child, parent]) => this.inside(child) || this.inside(parent));
    const lots = [[seen.length > 1000 ? 0.15 : 0.55, (line) => !chosen || line.some((end) => chosen.has(end))]];
    if (chosen) lots.push([0.12, (line) => !line.some((end) => chosen.has(end))]);
    pen.strokeStyle = ink;
    pen.lineWidth = 1;
    for (const [alpha, meant] of lots) {
      pen.globalAlpha = alpha;
      pen.beginPath();
      for (const line of seen) if (meant(line)) this.#line(pen, ...line, seen.length <= HEADS);
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  #line(pen, child, parent, head) {
    const [[fromX, fromY], [toX, toY]] = [this.at(parent), this.at(child)];
    pen.moveTo(fromX, fromY);
    pen.lineTo(toX, toY);
    const length = Math.hypot(toX - fromX, toY - fromY);
    if (!head || length < 24) return;
    const [x, y] = [(toX - fromX) / length, (toY - fromY) / length];
    const [tipX, tipY] = [toX - x * (this.radius(child) + 2), toY - y * (this.radius(child) + 2)];
    for (const side of [1, -1]) {
      pen.moveTo(tipX, tipY);
      pen.lineTo(tipX - 7 * x + side * 3.5 * y, tipY - 7 * y - side * 3.5 * x);
    }
  }

  #points(pen, seen, ink) {
    const { chosen } = this;
    const [bright, faded] = [this.colours.map(() => new Path2D()), this.colours.map(() => new Path2D())];
    for (const place of seen) {
      const path = (chosen && !chosen.has(place) ? faded : bright)[this.kinds[place]];
      const [[x, y], r] = [this.at(place), this.radius(place)];
      path.moveTo(x + r, y);
      path.arc(x, y, r, 0, 2 * Math.PI);
    }
    const order = [this.colours.length - 1, ...this.colours.keys()].slice(0, -1); // the rest below, rare ones on top
    pen.lineWidth = 0.8;
    pen.strokeStyle = ink("--card");
    for (const [alpha, lot] of [[0.25, faded], [0.9, bright]]) {
      pen.globalAlpha = alpha;
      for (const kind of order) {
        pen.fillStyle = ink(this.colours[kind]);
        pen.fill(lot[kind]);
        if (seen.length <= 4000) pen.stroke(lot[kind]);
      }
    }
    pen.globalAlpha = 1;
  }

  #ring(ink) {
    const { pen, hovered } = this;
    pen.strokeStyle = ink;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(...this.at(hovered), this.radius(hovered) + 2.5, 0, 2 * Math.PI);
    pen.stroke();
  }

  /** Names beside points, as far as they do not lie on one another. */
  #names(pen, seen, ink) {
    const { size } = this;
    const taken = [];
    pen.font = "12px system-ui, sans-serif";
    pen.fillStyle = ink("--dim");
    for (const place of seen) {
      const text = this.map.name[place].slice(0, size.width < 600 ? 14 : 24);
      const [[x, y], width] = [this.at(place), pen.measureText(text).width];
      const right = x + this.radius(place) + 4;
      const left = right + width > size.width - 4 ? x - this.radius(place) - 4 - width : right;
      const label = [left, y - 7, left + width, y + 7];
      if (taken.some((other) => label[0] < other[2] && other[0] < label[2] && label[1] < other[3] && other[1] < label[3])) continue;
      taken.push(label);
      pen.globalAlpha = this.chosen && !this.chosen.has(place) ? 0.35 : 1;
      pen.fillText(text, left, y + 4);
    }
    pen.globalAlpha = 1;
  }

  /** How far is far: a bar that says which similarity it is. */
  #scale(ink) {
    const { pen, size } = this;
    const steps = [1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001];
    const step = steps.find((each) => each * this.map.unit * this.view.scale < 140) ?? steps.at(-1);
    const [length, bottom] = [step * this.map.unit * this.view.scale, size.height - 14];
    pen.strokeStyle = pen.fillStyle = ink;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.moveTo(14, bottom - 4);
    pen.lineTo(14, bottom);
    pen.lineTo(14 + length, bottom);
    pen.lineTo(14 + length, bottom - 4);
    pen.stroke();
    pen.font = "12px system-ui, sans-serif";
    pen.fillText(`similarity ${(1 - step).toFixed(step < 0.01 ? 3 : step < 0.1 ? 2 : 1)}`, 14, bottom - 9);
  }

  #middle(ink) {
    const { pen, size } = this;
    pen.strokeStyle = ink;
    pen.lineWidth = 1;
    pen.strokeRect(size.width / 2 - 5, size.height / 2, 10, 0);
    pen.strokeRect(size.width / 2, size.height / 2 - 5, 0, 10);
  }
}
