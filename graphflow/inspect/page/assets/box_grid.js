// One picture of a box: a square for each element of two axes, at one index of all others.

const WIDEST = 420; // pixels of a picture
const SMALLEST_SQUARE = 6,
  LARGEST_SQUARE = 16,
  SQUARE_WITH_NUMBER = 15;
const MOST_ROWS = 16;

/** One picture: the squares of two axes of a box, at one index of all others. */
class BoxGrid {
  constructor(side, onMark) {
    Object.assign(this, { side, onMark });
    this.columns = side.shape.length - 1;
    this.rows = side.rows;
    this.index = side.shape.map(() => 0);
    this.marked = null;
    this.canvas = element("canvas", {
      tabindex: 0,
      role: "img",
      "aria-label": `${side.title} indices; arrow keys move the mark`,
      onmousemove: (event) => this.point(event),
      onclick: (event) => this.point(event),
      onkeydown: (event) => this.press(event),
      onredraw: () => this.draw(),
    });
    this.note = element("div", { class: "note" });
    this.inputs = side.shape.map((extent, axis) =>
      element("input", {
        type: "number",
        min: 0,
        max: extent - 1,
        "aria-label": `${side.title} ${side.names[axis]}`,
        onchange: (event) => this.enter(axis, event.target.value),
      }),
    );
    this.node = element(
      "div",
      { class: `box ${side.color}`, "data-side": side.title },
      element(
        "div",
        { class: "box-head" },
        element("strong", {}, side.title),
        element("span", {}, side.shape.join(" × ")),
        this.axisInputs(),
        this.rowChoice(),
      ),
      this.canvas,
      this.note,
    );
  }

  axisInputs() {
    return this.inputs.map((input, axis) =>
      element("label", {}, `${this.side.names[axis]} `, input),
    );
  }

  /** A choice of the axis that runs down the picture. */
  rowChoice() {
    if (this.side.shape.length < 3) return null;
    const options = this.side.names
      .slice(0, -1)
      .map((name, axis) => element("option", { value: axis, selected: axis === this.rows }, name));
    return element(
      "label",
      {},
      "down ",
      element(
        "select",
        {
          onchange: (event) => {
            this.rows = Number(event.target.value);
            this.draw();
          },
        },
        options,
      ),
    );
  }

  /** Mark an index of this side (null: nothing), and show the part of the box around it. */
  mark(index) {
    this.marked = index;
    if (index !== null) {
      this.index = index;
      this.inputs.forEach((input, axis) => {
        input.value = index[axis];
      });
    }
    this.draw();
  }

  enter(axis, text) {
    const value = Math.min(Math.max(0, Math.floor(Number(text) || 0)), this.side.shape[axis] - 1);
    this.onMark(this.index.map((old, k) => (k === axis ? value : old)));
  }

  press(event) {
    const steps = {
      ArrowLeft: [this.columns, -1],
      ArrowRight: [this.columns, 1],
      ArrowUp: [this.rows, -1],
      ArrowDown: [this.rows, 1],
    }[event.key];
    if (!steps || steps[0] === null) return;
    event.preventDefault();
    this.enter(steps[0], this.index[steps[0]] + steps[1]);
  }

  point(event) {
    const column = Math.floor(event.offsetX / this.square) + this.firstColumn;
    const row = Math.floor(event.offsetY / this.square) + this.firstRow;
    if (column >= this.afterColumn || row >= this.afterRow) return;
    this.onMark(this.at(row, column));
  }

  /** The index of a square. */
  at(row, column) {
    const index = [...this.index];
    index[this.columns] = column;
    if (this.rows !== null) index[this.rows] = row;
    return index;
  }

  /** Which part of the two axes is shown, in squares of which size. */
  measure() {
    const wide = this.side.shape[this.columns];
    const high = this.rows === null ? 1 : this.side.shape[this.rows];
    const fitting = Math.floor(WIDEST / wide);
    this.square = Math.max(SMALLEST_SQUARE, Math.min(LARGEST_SQUARE, fitting));
    const most = Math.floor(WIDEST / this.square);
    [this.firstColumn, this.afterColumn] = windowAround(
      this.index[this.columns],
      wide,
      most,
      this.firstColumn,
    );
    [this.firstRow, this.afterRow] = windowAround(
      this.rows === null ? 0 : this.index[this.rows],
      high,
      MOST_ROWS,
      this.firstRow,
    );
    this.note.textContent = [
      partText(this.side.names[this.columns], this.firstColumn, this.afterColumn, wide),
      this.rows === null
        ? ""
        : partText(this.side.names[this.rows], this.firstRow, this.afterRow, high),
      this.side.lanes > 1 ? `lines every ${this.side.lanes} elements: a vector` : "",
    ]
      .filter(Boolean)
      .join("; ");
  }

  draw() {
    this.measure();
    const width = (this.afterColumn - this.firstColumn) * this.square + 1;
    const height = (this.afterRow - this.firstRow) * this.square + 1;
    const scale = window.devicePixelRatio || 1;
    Object.assign(this.canvas, { width: width * scale, height: height * scale });
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    const colors = gridColors(this.node);
    for (let row = this.firstRow; row < this.afterRow; row += 1) {
      for (let column = this.firstColumn; column < this.afterColumn; column += 1) {
        this.drawSquare(pen, colors, row, column);
      }
    }
    this.drawLanes(pen, colors);
    this.drawMark(pen, colors);
  }

  drawSquare(pen, colors, row, column) {
    const size = this.square,
      gap = size > 5 ? 1 : 0;
    const x = (column - this.firstColumn) * size,
      y = (row - this.firstRow) * size;
    const { region, logical } = this.side.at(this.at(row, column));
    if (region !== "logical") {
      hatchSquare(pen, colors, x, y, size - gap, region === "gap");
      return;
    }
    const { share, number } = this.side.shade(logical);
    const isNew = column === this.firstColumn || this.numberAt(row, column - 1) !== number;
    pen.globalAlpha = 0.3 + 0.7 * share;
    pen.fillStyle = colors.fill;
    pen.fillRect(x, y, size - gap, size - gap);
    pen.globalAlpha = 1;
    if (size < SQUARE_WITH_NUMBER || number > 99 || !isNew) return;
    pen.fillStyle = share > 0.45 ? colors.card : colors.ink;
    pen.font = "9px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.fillText(number, x + size / 2, y + size / 2 + 3);
  }

  /** The number of a square; null for padding. */
  numberAt(row, column) {
    const { region, logical } = this.side.at(this.at(row, column));
    return region === "logical" ? this.side.shade(logical).number : null;
  }

  /** A line wherever a vector of the processor begins. */
  drawLanes(pen, colors) {
    if (this.side.lanes < 2) return;
    pen.fillStyle = colors.ink;
    for (let row = this.firstRow; row < this.afterRow; row += 1) {
      const base = flatIndex(this.at(row, 0), this.side.shape);
      for (let column = this.firstColumn; column < this.afterColumn; column += 1) {
        if ((base + column) % this.side.lanes) continue;
        pen.fillRect(
          (column - this.firstColumn) * this.square - 0.5,
          (row - this.firstRow) * this.square,
          1,
          this.square,
        );
      }
    }
  }

  drawMark(pen, colors) {
    if (this.marked === null) return;
    const row = this.rows === null ? 0 : this.marked[this.rows];
    const x = (this.marked[this.columns] - this.firstColumn) * this.square;
    const y = (row - this.firstRow) * this.square;
    pen.lineWidth = 2;
    pen.strokeStyle = colors.card;
    pen.strokeRect(x - 2, y - 2, this.square + 3, this.square + 3);
    pen.strokeStyle = colors.mark;
    pen.strokeRect(x - 0.5, y - 0.5, this.square, this.square);
  }
}

/** The part of an axis that is shown: the one shown before, moved so that it contains `index`. */
function windowAround(index, extent, most, before = 0) {
  if (extent <= most) return [0, extent];
  const inside = index >= before && index < before + most;
  const first = inside
    ? before
    : Math.min(Math.max(0, index - Math.floor(most / 2)), extent - most);
  return [first, first + most];
}

function partText(name, first, after, extent) {
  const whole = first === 0 && after === extent;
  return whole ? "" : `${name} ${first} to ${after - 1} of ${extent}`;
}

function gridColors(node) {
  // The node may not be in the document yet; then the colours are those of the page.
  const page = getComputedStyle(document.documentElement);
  const name = [...node.classList].find((one) => one.startsWith("layout-"))?.slice(7);
  const color = (key) => page.getPropertyValue(`--${key}`).trim();
  return {
    fill: color(name),
    card: color("card"),
    ink: color("ink"),
    mark: color("mark"),
    line: color("muted"),
  };
}

/** A square of padding: hatched; a gap is crossed out. */
function hatchSquare(pen, colors, x, y, size, isGap) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, size, size);
  pen.clip();
  pen.strokeStyle = colors.line;
  pen.lineWidth = 1;
  pen.beginPath();
  for (let k = -size; k < size; k += 4) {
    pen.moveTo(x + k, y + size);
    pen.lineTo(x + k + size, y);
    if (isGap) {
      pen.moveTo(x + k, y);
      pen.lineTo(x + k + size, y + size);
    }
  }
  pen.stroke();
  pen.restore();
}
