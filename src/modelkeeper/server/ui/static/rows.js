// How are many rows shown in few elements? Those that can be seen are there, and are used again while one scrolls.

export const HEIGHT = 30;
const BEYOND = 8; // rows above and below what can be seen

/** A list of rows in a scrolling box; `draw(index)` gives the element of a row. */
export class Rows {
  constructor(box, draw) {
    this.box = box;
    this.draw = draw;
    this.count = 0;
    this.at = -1; // the row that the keyboard is on
    this.space = document.createElement("div");
    this.space.className = "space";
    this.drawn = new Map();
    box.replaceChildren(this.space);
    box.addEventListener("scroll", () => this.#later(), { passive: true });
    box.addEventListener("keydown", (event) => this.#key(event));
    box.addEventListener("click", (event) => this.#click(event));
    new ResizeObserver(() => this.#later()).observe(box);
  }

  /** Show so many rows, from now on, all drawn anew. */
  show(count) {
    this.count = count;
    this.at = Math.min(this.at, count - 1);
    this.space.style.height = `${count * HEIGHT}px`;
    this.box.style.height = `${Math.min(560, count * HEIGHT + 2)}px`;
    this.again();
  }

  /** Draw what can be seen anew. */
  again() {
    for (const row of this.drawn.values()) row.remove();
    this.drawn.clear();
    this.#fill();
  }

  /** Bring a row into view, and the keyboard to it. */
  go(index) {
    this.at = Math.max(0, Math.min(this.count - 1, index));
    const top = this.at * HEIGHT;
    const box = this.box;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + HEIGHT > box.scrollTop + box.clientHeight) box.scrollTop = top + HEIGHT - box.clientHeight;
    this.#fill();
  }

  #later() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.#fill();
    });
  }

  #fill() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / HEIGHT) - BEYOND);
    const last = Math.min(this.count, Math.ceil((this.box.scrollTop + this.box.clientHeight) / HEIGHT) + BEYOND);
    for (const [index, row] of this.drawn) {
      if (index < first || index >= last) {
        row.remove();
        this.drawn.delete(index);
      }
    }
    for (let index = first; index < last; index++) {
      let row = this.drawn.get(index);
      if (!row) {
        row = this.draw(index);
        row.style.top = `${index * HEIGHT}px`;
        row.dataset.index = index;
        this.drawn.set(index, row);
        this.space.append(row);
      }
      row.classList.toggle("at", index === this.at);
    }
    this.box.dispatchEvent(new CustomEvent("rows", { detail: { first, last } }));
  }

  #key(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / HEIGHT) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.count, End: this.count };
    if (event.target !== this.box) return;
    if (event.key in moves) {
      event.preventDefault();
      this.go(this.at + moves[event.key]);
    } else if (event.key === "Enter" && this.at >= 0) {
      event.preventDefault();
      this.#chosen(this.at);
    }
  }

  #click(event) {
    const row = event.target.closest(".row");
    if (!row) return;
    this.at = Number(row.dataset.index);
    this.#fill();
    this.#chosen(this.at);
  }

  #chosen(index) {
    this.box.dispatchEvent(new CustomEvent("choose", { detail: index }));
  }
}
