// Two pictures of one tensor: its logical indices, and its physical box, a square for an element.
// The element under the mouse in one of them is marked in both.

const WIDEST = 420;  // pixels of a picture
const SMALLEST_SQUARE = 6, LARGEST_SQUARE = 16, SQUARE_WITH_NUMBER = 15;
const MOST_ROWS = 16;

/** The pictures and the line about the marked element. */
function boxPictures(model, tensor, edgeType) {
  const layout = layoutOf(model, edgeType);
  if (layout === null || !layout.physical.length || !layout.logical_shape.length || layout.logical_shape.includes(0)) return null;
  const facts = new Map(model.edge_types[edgeType].facts);
  const place = element("p", { class: "place", role: "status", "data-role": "place" });
  const shared = { layout, tensor, facts, color: familyClass(model, edgeType) };
  const logical = new BoxGrid(logicalSide(shared), (index) => mark(index, null));
  const physical = new BoxGrid(physicalSide(shared), (index) => mark(null, index));

  /** Mark the element at a logical or physical index in both pictures. */
  function mark(logicalAt, physicalAt) {
    const inBox = physicalAt ?? physicalIndex(layout, logicalAt);
    const found = placeInBox(layout, inBox);
    logical.mark(found.region === "logical" ? found.logical : null);
    physical.mark(inBox);
    place.textContent = placeText(shared, inBox, found);
  }
  mark(layout.logical_shape.map(() => 0), null);
  return element("div", { class: "boxes" }, logical.node, physical.node, place);
}

/** What lies at a physical index, in words. */
function placeText({ layout, tensor, facts }, inBox, { region, logical }) {
  const flat = flatIndex(inBox, layout.physical_shape);
  const byte = tensor.element_bytes ? `, byte ${flat * tensor.element_bytes}` : "";
  const lane = tensor.lanes > 1
    ? `, lane ${flat % tensor.lanes} of vector ${Math.floor(flat / tensor.lanes)}` : "";
  const where = `physical [${inBox.join(", ")}]: element ${flat} of the box${byte}${lane}`;
  if (region === "logical") return `logical [${logical.join(", ")}] lies at ${where}`;
  return `padding ${region}, which holds ${facts.get(region)}, lies at ${where}`;
}

/** The letters of the logical axes, as in the names of layouts. */
function axisLetters(rank) {
  return [...({ 3: "NCW", 4: "NCHW", 5: "NCDHW" }[rank] ?? "")];
}

/** What the picture of the logical indices shows. */
function logicalSide({ layout, color }) {
  const rank = layout.logical_shape.length;
  const letters = axisLetters(rank);
  return {
    title: "Logical", color, shape: layout.logical_shape, lanes: 0,
    names: layout.logical_shape.map((_, axis) => letters[axis] ?? `i${axis}`),
    rows: rank > 1 ? shadedAxis(layout) === rank - 1 ? rank - 2 : shadedAxis(layout) : null,
    at: (index) => ({ region: "logical", logical: index }),
    shade: shadeOf(layout),
  };
}

/** What the picture of the physical box shows. */
function physicalSide({ layout, tensor, color }) {
  return {
    title: "Physical", color, shape: layout.physical_shape, lanes: tensor.lanes,
    names: layout.physical.map((code, axis) => physicalAxisName(layout, code, axis)),
    rows: physicalRows(layout),
    at: (index) => placeInBox(layout, index),
    shade: shadeOf(layout),
  };
}

/** The name of a physical axis: the letter of its logical axis (c and C of blocks), or its number. */
function physicalAxisName(layout, code, axis) {
  const letters = axisLetters(layout.logical_shape.length);
  const used = [...new Set(variablesOf(code))];
  if (used.length !== 1 || !letters.length) return `p${axis}`;
  const letter = letters[Number(used[0].slice(1))];
  if (Array.isArray(code) && code[0] === "//") return `${letter} block`;
  return Array.isArray(code) && code[0] === "%" ? letter.toLowerCase() : letter;
}

/** The axis that runs down the picture of the box: one that has a logical axis in common with the
 * last, as blocks have; else the last one before it that is longer than one. */
function physicalRows(layout) {
  const last = layout.physical.length - 1;
  if (last < 1) return null;
  const shared = new Set(variablesOf(layout.physical[last]));
  const candidates = Array.from({ length: last }, (_, axis) => last - 1 - axis);
  const longer = candidates.filter((axis) => layout.physical_shape[axis] > 1);
  return longer.find((axis) => variablesOf(layout.physical[axis]).some((v) => shared.has(v)))
    ?? longer[0] ?? last - 1;
}

/** The logical axis whose index shades the squares: the padded one, channels, or the first. */
function shadedAxis(layout) {
  const padded = layout.regions.flatMap((name) => name.match(/^pad\((\d+)/)?.slice(1) ?? [])[0];
  if (padded !== undefined) return Number(padded);
  return layout.logical_shape.length > 1 ? 1 : 0;
}

/** The shade from 0 to 1 of a logical index, and the number that is written into its square. */
function shadeOf(layout) {
  const axis = shadedAxis(layout);
  return (logical) => ({
    number: logical[axis], share: logical[axis] / Math.max(1, layout.logical_shape[axis] - 1),
  });
}

/** One picture: the squares of two axes of a box, at one index of all others. */
class BoxGrid {
  constructor(side, onMark) {
    Object.assign(this, { side, onMark });
    this.columns = side.shape.length - 1;
    this.rows = side.rows;
    this.index = side.shape.map(() => 0);
    this.marked = null;
    this.canvas = element("canvas", {
      tabindex: 0, role: "img", "aria-label": `${side.title} indices; arrow keys move the mark`,
      onmousemove: (event) => this.point(event), onclick: (event) => this.point(event),
      onkeydown: (event) => this.press(event),
    });
    this.note = element("div", { class: "note" });
    this.inputs = side.shape.map((extent, axis) => element("input", {
      type: "number", min: 0, max: extent - 1, "aria-label": `${side.title} ${side.names[axis]}`,
      onchange: (event) => this.enter(axis, event.target.value),
    }));
    this.node = element("div", { class: `box ${side.color}`, "data-side": side.title },
      element("div", { class: "box-head" }, element("strong", {}, side.title),
        element("span", {}, side.shape.join(" × ")), this.axisInputs(), this.rowChoice()),
      this.canvas, this.note);
  }

  axisInputs() {
    return this.inputs.map((input, axis) => element("label", {}, `${this.side.names[axis]} `, input));
  }

  /** A choice of the axis that runs down the picture. */
  rowChoice() {
    if (this.side.shape.length < 3) return null;
    const options = this.side.names.slice(0, -1).map((name, axis) =>
      element("option", { value: axis, selected: axis === this.rows }, name));
    return element("label", {}, "down ", element("select", {
      onchange: (event) => { this.rows = Number(event.target.value); this.draw(); },
    }, options));
  }

  /** Mark an index of this side (null: nothing), and show the part of the box around it. */
  mark(index) {
    this.marked = index;
    if (index !== null) {
      this.index = index;
      this.inputs.forEach((input, axis) => { input.value = index[axis]; });
    }
    this.draw();
  }

  enter(axis, text) {
    const value = Math.min(Math.max(0, Math.floor(Number(text) || 0)), this.side.shape[axis] - 1);
    this.onMark(this.index.map((old, k) => (k === axis ? value : old)));
  }

  press(event) {
    const steps = { ArrowLeft: [this.columns, -1], ArrowRight: [this.columns, 1],
      ArrowUp: [this.rows, -1], ArrowDown: [this.rows, 1] }[event.key];
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
    [this.firstColumn, this.afterColumn] = windowAround(this.index[this.columns], wide, most,
      this.firstColumn);
    [this.firstRow, this.afterRow] = windowAround(this.rows === null ? 0 : this.index[this.rows],
      high, MOST_ROWS, this.firstRow);
    this.note.textContent = [
      partText(this.side.names[this.columns], this.firstColumn, this.afterColumn, wide),
      this.rows === null ? "" : partText(this.side.names[this.rows], this.firstRow, this.afterRow, high),
      this.side.lanes > 1 ? `lines every ${this.side.lanes} elements: a vector` : "",
    ].filter(Boolean).join("; ");
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
    const size = this.square, gap = size > 5 ? 1 : 0;
    const x = (column - this.firstColumn) * size, y = (row - this.firstRow) * size;
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
        pen.fillRect((column - this.firstColumn) * this.square - 0.5,
          (row - this.firstRow) * this.square, 1, this.square);
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
  const first = inside ? before : Math.min(Math.max(0, index - Math.floor(most / 2)), extent - most);
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
  return { fill: color(name), card: color("card"), ink: color("ink"), mark: color("mark"),
    line: color("muted") };
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
