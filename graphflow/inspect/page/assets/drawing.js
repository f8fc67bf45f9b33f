// The picture of the graph: boxes for nodes and folded blocks, lines for tensors.

const WIDTH = 250,
  STRIP = 18,
  ROUND = 7,
  CORNER = 7,
  MARGIN = 10;

/** The size of an item, before it is laid out. */
function sizedItem(model, item) {
  const node = item.fold === null ? model.nodes[item.places[0]] : null;
  const height =
    node === null
      ? 62
      : ({ input: 46, output: 46, check: 46, view: 42, operator: 42 }[node.kind] ?? 60);
  return { ...item, node, width: WIDTH, height };
}

/** The group of an item; `view` is told of clicks. */
function drawnItem(view, item) {
  const { model } = view;
  const group = svgElement("g", {
    class: `item ${itemClass(item)}`,
    transform: `translate(${item.x} ${item.y})`,
    role: "button",
    tabindex: -1,
    "aria-label": itemLabel(item),
    "data-item": item.id,
    onclick: () => view.open({ item }),
    ondblclick: () => item.fold && view.unfold(item.fold),
  });
  if (item.fold !== null) {
    for (const shift of [8, 4]) group.append(bodyOf(item, "behind", shift));
  }
  group.append(
    bodyOf(item, "body", 0),
    ...(item.node ? nodeContents(view, item) : foldContents(model, item)),
  );
  group.append(svgElement("title", {}, itemLabel(item)));
  return group;
}

function bodyOf({ width, height }, name, shift) {
  return svgElement("rect", { class: name, x: shift, y: shift, width, height, rx: ROUND });
}

function itemClass({ node }) {
  if (node === null) return "block";
  if (isEnd(node)) return "end";
  if (node.kind === "operator" && !node.became.length) return "operator gone";
  return isConversion(node) ? "conversion" : node.kind;
}

function itemLabel(item) {
  if (item.node === null) return foldTitle(item);
  const price = item.node.seconds === null ? "" : `, ${timeText(item.node.seconds)}`;
  return `${nodeTitle(item.node)}: ${item.node.name}${price}`;
}

/** Title, name, price and the strip of the tensor that a node writes. */
function nodeContents(view, { node, width, height }) {
  const { model } = view;
  const parts = [];
  const heat = (node.seconds ?? 0) / model.greatestSeconds;
  if (heat > 0.01) {
    parts.push(
      svgElement("rect", { class: "heat", x: 6, y: 1, width: (width - 12) * heat, height: 3 }),
    );
  }
  if (changesAt(model, node).length) {
    parts.push(
      svgElement("rect", { class: "changed", x: 0, y: 6, width: 5, height: height - STRIP - 10 }),
    );
  }
  const isThin = ["view", "operator"].includes(node.kind) || isEnd(node);
  const title = isEnd(node) ? `${nodeTitle(node)} ${node.name}` : nodeTitle(node);
  parts.push(textLine(title, MARGIN, isThin ? 16 : 19, "name", width - 2 * MARGIN));
  if (!isThin) {
    const price =
      node.seconds === null ? "" : `${timeText(node.seconds)} · ${percentText(node.share)}`;
    const room = width - 3 * MARGIN - textWidth(price, "price");
    const detail = node.operators.length || isConversion(node) ? node.name : (node.variant ?? "");
    parts.push(textLine(detail, MARGIN, 35, "detail", room));
    parts.push(textLine(price, width - MARGIN, 35, "price", width, "end"));
  }
  parts.push(strip(view, node, width, height));
  return parts;
}

/** The strip at the bottom of a node: the tensor that it writes, coloured by its layout. */
function strip(view, node, width, height) {
  const { model } = view;
  const tensor = mainTensor(model, node);
  if (tensor === null) return "";
  const edgeType = mainEdgeType(model, node);
  const layout = layoutOf(model, edgeType);
  const path =
    `M0 ${height - STRIP}H${width}V${height - ROUND}` +
    `Q${width} ${height} ${width - ROUND} ${height}` +
    `H${ROUND}Q0 ${height} 0 ${height - ROUND}Z`;
  const title = layout === null ? tensor.where : layoutTitle(layout);
  const text = `${title}  ${shapeText(tensor.logical_shape)}`;
  return svgElement(
    "g",
    {
      class: `strip-part ${familyClass(model, edgeType)}`,
      "data-tensor": tensor.name,
      onclick: (event) => {
        event.stopPropagation();
        view.open({ tensor: tensor.name, edgeType });
      },
    },
    svgElement("path", { class: "strip", d: path }),
    isPadded(model, edgeType) ? hatchedEnd(width, height, textWidth(text, "strip-text")) : null,
    textLine(text, MARGIN, height - 5, "strip-text", width - 2 * MARGIN),
  );
}

/** The name of a layout, or its family if the name is a formula. */
function layoutTitle(layout) {
  return layout.name.startsWith("(") ? layout.family : layout.name;
}

const LEAST_HATCHED = 24;

/** The hatched end of the strip of a padded tensor, behind its text. */
function hatchedEnd(width, height, used) {
  const room = Math.max(LEAST_HATCHED, width - 2 * MARGIN - used);
  return svgElement("rect", {
    class: "hatch",
    x: width - room,
    y: height - STRIP,
    width: room - ROUND / 2,
    height: STRIP,
  });
}

function foldContents(model, item) {
  const nodes = item.places.map((place) => model.nodes[place]);
  const runs = nodes.slice(0, repetitions(item.block)[0].length).filter((node) => node.kind !== "view");
  const counted = Map.groupBy(runs, (node) => node.operators[0] ?? node.kind);
  const operators = [...counted].map(([name, alike]) =>
    alike.length > 1 ? `${alike.length} ${name}` : name,
  );
  const conversions = nodes.filter(isConversion).length;
  const price = totalSeconds(nodes)
    ? `${timeText(totalSeconds(nodes))} · ${percentText(totalShare(nodes))}`
    : `${nodes.length} nodes`;
  const warning = conversions ? ` · ${conversions} conversions` : "";
  return [
    textLine(foldTitle(item), MARGIN, 19, "name", item.width - 4 * MARGIN),
    textLine(operators.join(", "), MARGIN, 36, "detail", item.width - 2 * MARGIN),
    textLine(price + warning, MARGIN, 53, "price", item.width - 2 * MARGIN),
    textLine("⊞", item.width - MARGIN, 20, "name", 2 * MARGIN, "end"),
  ];
}

/** A line of text of at most `room` pixels; `name` is its class. */
function textLine(text, x, y, name, room, anchor = "start") {
  return svgElement("text", { x, y, class: name, "text-anchor": anchor }, fitted(text, name, room));
}

const FONTS = { name: "600 13px", detail: "11px", price: "11.5px", "strip-text": "600 11px" };
const pens = new Map();

/** The width of a text in pixels. */
function textWidth(text, name) {
  if (!pens.has(name)) {
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = `${FONTS[name]} ${getComputedStyle(document.body).fontFamily}`;
    pens.set(name, pen);
  }
  return pens.get(name).measureText(text).width;
}

/** The beginning of a text that fits into so many pixels, with an ellipsis. */
function fitted(text, name, room) {
  const width = textWidth(text, name);
  if (width <= room) return text;
  let most = Math.floor((text.length * room) / width);
  while (most > 1 && textWidth(shortened(text, most), name) > room) most -= 1;
  return shortened(text, most);
}

const FRAME = 12;

/** The frame around the items of an open repetition of a block; its title folds it again. */
function drawnFrame(view, part, items) {
  const [left, top] = ["x", "y"].map(
    (side) => Math.min(...items.map((item) => item[side])) - FRAME,
  );
  const right = Math.max(...items.map((item) => item.x + item.width)) + FRAME;
  const bottom = Math.max(...items.map((item) => item.y + item.height)) + FRAME;
  return svgElement(
    "g",
    { class: "frame" },
    svgElement("rect", { x: left, y: top, width: right - left, height: bottom - top, rx: ROUND }),
    svgElement(
      "text",
      { x: right + 6, y: top + 12, role: "button", onclick: () => view.fold(part) },
      `⊟ ${foldTitle(part)}`,
    ),
  );
}

/** The group of an edge, from the points that the layout gave it. */
function drawnEdge(view, edge) {
  const { model } = view;
  const [arrow] = edge.arrows;
  const points = edge.sections.flatMap(({ startPoint, bendPoints = [], endPoint }) => [
    startPoint,
    ...bendPoints,
    endPoint,
  ]);
  const d = roundedPath(points);
  const padded = isPadded(model, arrow.edge_type);
  const group = svgElement(
    "g",
    {
      class: `edge ${familyClass(model, arrow.edge_type)}${padded ? " padded" : ""}`,
      "data-tensor": arrow.tensor,
      "data-edge": edge.id,
      onclick: () => view.open({ tensor: arrow.tensor, edgeType: arrow.edge_type, edge }),
    },
    svgElement("path", { class: "wide", d }),
    svgElement("path", { class: "line", d }),
    padded ? svgElement("path", { class: "gaps", d }) : null,
    arrowHead(points.at(-1)),
  );
  const name = layoutOf(model, arrow.edge_type)?.name ?? "";
  const shape = shapeText(model.tensorByName.get(arrow.tensor)?.logical_shape ?? []);
  group.append(svgElement("title", {}, `${arrow.tensor}: ${name} ${shape}`));
  return group;
}

function arrowHead({ x, y }) {
  return svgElement("path", { class: "head", d: `M${x} ${y}l-4.5 -8h9z` });
}

/** A path through points with rounded corners. */
function roundedPath(points) {
  const [first, ...others] = points;
  let path = `M${first.x} ${first.y}`;
  others.forEach((point, k) => {
    const next = others[k + 1];
    if (!next) {
      path += `L${point.x} ${point.y}`;
      return;
    }
    const before = towards(point, points[k], CORNER),
      after = towards(point, next, CORNER);
    path += `L${before.x} ${before.y}Q${point.x} ${point.y} ${after.x} ${after.y}`;
  });
  return path;
}

/** The point at most `distance`, and at most half the way, from one point to another. */
function towards(from, to, distance) {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const share = Math.min(distance, length / 2) / length;
  return { x: from.x + (to.x - from.x) * share, y: from.y + (to.y - from.y) * share };
}

/** The pattern that hatches padding. */
function hatchPattern(id) {
  return svgElement(
    "defs",
    {},
    svgElement(
      "pattern",
      {
        id,
        width: 7,
        height: 7,
        patternUnits: "userSpaceOnUse",
        patternTransform: "rotate(45)",
      },
      svgElement("line", { class: "hatch-line", x1: 0, y1: 0, x2: 0, y2: 7 }),
    ),
  );
}

/** The entries of the legend: layouts that occur, and kinds of nodes that do. */
function legendEntries(model) {
  const swatch = (name) => element("span", { class: `swatch ${name}` });
  const families = Map.groupBy([...model.families.keys()], (family) => model.families.get(family));
  const entries = [...families].map(([name, alike]) =>
    element("li", {}, swatch(`layout-${name}`), alike.join(", ")),
  );
  const add = (wanted, name, text) => wanted && entries.push(element("li", {}, swatch(name), text));
  add(
    model.arrows.some((arrow) => isPadded(model, arrow.edge_type)),
    "padded layout-none",
    "with padding",
  );
  add(model.nodes.some(isConversion), "conversion", "only moves or fills elements");
  add(
    model.nodes.some((node) => node.kind === "view"),
    "view",
    "view: nothing is executed",
  );
  add(
    model.nodes.some((node) => node.kind === "section"),
    "section",
    "runs in onnxruntime",
  );
  add(model.compared !== null, "changed", "differs from the other plan");
  add(model.blocks.length, "block", "repeated block, folded");
  return entries;
}
