// Two pictures of one tensor: its logical indices, and its physical box, a square for an element.
// The element under the mouse in one of them is marked in both.

/** The pictures and the line about the marked element. */
function boxPictures(model, tensor, edgeType) {
  const layout = layoutOf(model, edgeType);
  if (
    layout === null ||
    !layout.physical.length ||
    !layout.logical_shape.length ||
    layout.logical_shape.includes(0)
  )
    return null;
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
  mark(
    layout.logical_shape.map(() => 0),
    null,
  );
  return element("div", { class: "boxes" }, logical.node, physical.node, place);
}

/** What lies at a physical index, in words. */
function placeText({ layout, tensor, facts }, inBox, { region, logical }) {
  const flat = flatIndex(inBox, layout.physical_shape);
  const byte = tensor.element_bytes ? `, byte ${flat * tensor.element_bytes}` : "";
  const lane =
    tensor.lanes > 1
      ? `, lane ${flat % tensor.lanes} of vector ${Math.floor(flat / tensor.lanes)}`
      : "";
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
    title: "Logical",
    color,
    shape: layout.logical_shape,
    lanes: 0,
    names: layout.logical_shape.map((_, axis) => letters[axis] ?? `i${axis}`),
    rows: rank > 1 ? (shadedAxis(layout) === rank - 1 ? rank - 2 : shadedAxis(layout)) : null,
    at: (index) => ({ region: "logical", logical: index }),
    shade: shadeOf(layout),
  };
}

/** What the picture of the physical box shows. */
function physicalSide({ layout, tensor, color }) {
  return {
    title: "Physical",
    color,
    shape: layout.physical_shape,
    lanes: tensor.lanes,
    names: layout.physical.map((code, axis) => physicalAxisName(layout, code, axis)),
    rows: physicalRows(layout),
    at: (index) => placeInBox(layout, index),
    shade: shadeOf(layout),
  };
}

/** The name of a physical axis: the letter of its logical axis, C and c of blocks, or a number. */
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
  return (
    longer.find((axis) => variablesOf(layout.physical[axis]).some((v) => shared.has(v))) ??
    longer[0] ??
    last - 1
  );
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
    number: logical[axis],
    share: logical[axis] / Math.max(1, layout.logical_shape[axis] - 1),
  });
}
