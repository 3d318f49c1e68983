// What becomes of one layer, tensor by tensor and axis by axis, and which layers must change with an axis?
import { ask, element } from "./dom.js";

const said = (action) => element("span", { class: `detail-act do-${action}` }, action);

/** The box below the rows. `mark(rows)` shows rows that belong together, `go(row)` brings one into view. */
export class Detail {
  constructor(box, query, { mark, go }) {
    Object.assign(this, { box, query, mark, go });
    this.turn = 0; // what is asked for later comes later
  }

  /** Ask about a row, and tell. */
  async tell(row) {
    const found = await this.#ask("layer", { row });
    if (found) this.#show(found);
  }

  async #ask(what, more) {
    const turn = ++this.turn;
    const parts = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(more)) parts.set(name, value);
    this.box.hidden = false;
    this.box.setAttribute("aria-busy", "true");
    try {
      const found = await ask(`/ui/diff/${what}.json?${parts}`);
      return turn === this.turn ? found : null;
    } catch (problem) {
      if (turn === this.turn) this.box.replaceChildren(element("p", { class: "problem", role: "alert" }, problem.message));
      return null;
    } finally {
      if (turn === this.turn) this.box.setAttribute("aria-busy", "false");
    }
  }

  #show(found) {
    const layer = found.child ?? found.parent;
    const heading = element("h3", {}, element("bdi", {}, layer.name), ` · ${layer.kind} · `, said(found.action));
    const differs = found.differs.length ? element("p", {}, `Differs: ${found.differs.join("; ")}`) : "";
    const body = found.tensors.map((tensor) => this.#tensor(tensor));
    const titles = ["Tensor", "Shape", "What", "Axis by axis", "From", "Why"].map((title) => element("th", { scope: "col" }, title));
    const table = element("table", { class: "rows small" }, element("thead", {}, element("tr", {}, titles)), element("tbody", {}, body));
    const none = found.child ? "It has no weights." : "Only the lender has it.";
    const space = element("div", { class: "space-of", hidden: true });
    this.box.replaceChildren(heading, ...fed(found), differs, body.length ? table : element("p", { class: "hint" }, none), space);
    this.mark([]);
  }

  #tensor(tensor) {
    const [lent, own] = tensor.shapes;
    const shape = lent && own && lent !== own ? `${lent} → ${own}` : (own ?? lent);
    const why = [tensor.why, tensor.exact ? "" : "not exact"].filter(Boolean).join("; ");
    return element(
      "tr",
      {},
      element("th", { scope: "row" }, element("bdi", {}, tensor.name)),
      element("td", { class: "shape" }, shape),
      element("td", {}, tensor.action ? said(tensor.action) : "–"),
      element("td", {}, tensor.axes.length ? element("ul", { class: "axes" }, tensor.axes.map((axis) => this.#axis(axis))) : ""),
      element("td", {}, tensor.from ? element("bdi", {}, tensor.from) : ""),
      element("td", {}, why ? element("bdi", {}, why) : ""),
    );
  }

  #axis(axis) {
    const [lent, own] = axis.sizes;
    const sizes = lent !== null && own !== null && lent !== own ? `${lent} → ${own}` : String(own ?? lent);
    const buttons = axis.spaces.map((space) => {
      const button = element("button", { type: "button", "aria-pressed": "false", title: "Which layers change with it?" }, `s${space}`);
      button.addEventListener("click", () => this.#space(button, axis.side, space));
      return button;
    });
    const what = axis.action ? element("span", { class: `does do-${axis.action}` }, axis.action) : "";
    return element("li", { title: axis.why || null }, `${axis.role} ${sizes} `, what, axis.exact ? "" : " ≈", buttons);
  }

  /** Show every layer that an axis changes with; once more: no longer. */
  async #space(button, side, space) {
    const box = this.box.querySelector(".space-of");
    const pressed = button.getAttribute("aria-pressed") === "true";
    for (const other of this.box.querySelectorAll(".axes button")) other.setAttribute("aria-pressed", "false");
    box.hidden = pressed;
    if (pressed) return this.mark([]);
    const found = await this.#ask("space", { side, space });
    if (!found) return;
    for (const other of this.box.querySelectorAll(".axes button")) {
      if (other.textContent === button.textContent) other.setAttribute("aria-pressed", "true");
    }
    box.hidden = false;
    box.replaceChildren(...this.#together(found));
    this.mark(found.rows);
  }

  #together(found) {
    const many = found.rows.length.toLocaleString("en");
    const layers = found.rows.length === 1 ? "1 layer has" : `${many} layers have`;
    const change = found.lender === null ? `${found.size} units` : found.lender === found.size ? `${found.size} units, as in the lender` : `${found.size} units, from ${found.lender} of the lender`;
    const alone = found.side === "child" && found.lender === null ? "The lender has nothing for it. " : "";
    const pinned = found.pins.length ? `Its width is not free: ${found.pins.join("; ")}. ` : "Its width is free. ";
    const averaged = found.averaged ? "A statistic is taken over it, so that copies are exact only in equal numbers." : "";
    const items = found.layers.map((layer) => {
      const button = element("button", { type: "button", title: `${layer.name} (${layer.kind})` }, element("bdi", {}, layer.name), element("span", { class: "sub" }, layer.axes.join(", ")));
      button.addEventListener("click", () => this.go(layer.row));
      return element("li", {}, button);
    });
    const more = found.rows.length - found.layers.length;
    return [
      element("h3", {}, `${layers} space s${found.space}: ${change}`),
      element("p", { class: "hint" }, `They widen together, and are marked in the rows. ${alone}`, element("bdi", {}, pinned), averaged),
      element("ul", { tabindex: "0", role: "region", "aria-label": "Layers that widen together" }, items),
      more ? element("p", { class: "hint" }, `and ${more.toLocaleString("en")} more, marked in the rows`) : "",
    ].filter(Boolean);
  }
}

/** What a layer is fed with on both sides; once, where the two are alike. */
function fed(found) {
  const words = (side) => side.inputs.map((input) => (input.via ? `${input.name} (${input.via})` : input.name)).join(", ") + (side.more_inputs ? ` and ${side.more_inputs} more` : "");
  const sides = [found.parent, found.child].filter((side) => side?.inputs.length);
  const texts = [...new Set(sides.map(words))];
  const names = texts.length === 2 ? ["In the lender fed by ", "In the borrower fed by "] : ["Fed by "];
  return texts.map((text, index) => element("p", { class: "fed" }, names[index], element("bdi", {}, text)));
}
