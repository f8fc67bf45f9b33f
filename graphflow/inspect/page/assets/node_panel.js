// The panels of a node, of a folded block, and of the whole model.

const KINDS = {
  input: "Input of the model",
  output: "Output of the model",
  check: "Tensor that each run checks, or cuts outputs by",
  kernel: "Kernel",
  view: "View: nothing is executed",
  section: "Section that onnxruntime runs",
  region: "Branch or loop of which a run decides",
  operator: "Operator of the model as imported",
  move: "Kernel that only moves elements",
  convert: "Conversion",
  copy: "Copy",
  fill: "Fill",
};

/** The panel of a node. */
function nodePanel(page, node) {
  return element(
    "div",
    { "data-panel": "node" },
    element("p", { class: "kind" }, KINDS[node.kind]),
    element("h2", {}, nodeTitle(node)),
    element("p", {}, node.name),
    node.graph === "program" ? originsOf(node) : null,
    section("Changes", changesTable(changesAt(page.model, node))),
    section(
      "Runs as",
      (node.becameNodes ?? []).map((made) =>
        element("p", {}, page.linkTo(made, nodeTitle(made)), ` ${timeText(made.seconds)}`),
      ),
    ),
    section("Price", priceOf(page, node)),
    section("Measured in a run", measuredOf(page, node)),
    section(
      whyTitle(node),
      node.variant && element("p", {}, "Variant ", element("strong", {}, node.variant)),
      node.because &&
        element("p", { class: isConversion(node) ? "warning" : null }, sentence(node.because)),
      node.notes.map((note) => element("p", {}, sentence(note))),
    ),
    section(
      "Reads",
      node.inputs.map(([buffer, name]) =>
        element(
          "p",
          {},
          page.tensorLink(name, arrivingEdgeType(node, name)),
          buffer ? ` as ${buffer}` : "",
        ),
      ),
    ),
    section(
      "Writes",
      node.outputs.map((name) =>
        element("p", {}, page.tensorLink(name, mainEdgeType(page.model, node))),
      ),
    ),
    section(
      "In the model",
      (node.importedAs ?? []).map((operator) =>
        element("p", {}, page.linkTo(operator, nodeTitle(operator)), ` ${operator.name}`),
      ),
    ),
    section("Variants that were not taken", othersTable(node.others, "variant")),
    section("Refused", node.refused.length ? table(["variant", "reason"], node.refused) : null),
    section("Kernel", kernelTexts(page.model.kernels[node.kernel])),
  );
}

/** The names of the nodes of the model whose work a node does. */
function originsOf(node) {
  if (!node.origins.length || (node.origins.length === 1 && node.origins[0] === node.name))
    return null;
  return element("p", { class: "proof" }, `Does the work of ${node.origins.join(", ")}.`);
}

function whyTitle(node) {
  if (node.graph === "imported") return "Why nothing runs for it";
  return node.variant ? "Why this variant" : "Why it is executed";
}

/** The edge type in which a tensor comes to a node; null for a constant. */
function arrivingEdgeType(node, name) {
  return node.arrowsIn.find((arrow) => arrow.tensor === name)?.edge_type ?? null;
}

function priceOf(page, node) {
  if (node.seconds === null) return null;
  return [
    element(
      "p",
      {},
      element("strong", {}, timeText(node.seconds)),
      ` ${node.measured ? "measured" : "estimated"}, ${percentText(node.share)} of a run`,
      node.bytes ? `; reads and writes ${bytesText(node.bytes)}` : "",
    ),
    shareBar(node.share),
  ];
}

function shareBar(share) {
  const bar = element("div");
  bar.style.width = `${Math.min(100, 100 * share)}%`;
  return element("div", { class: "bar" }, bar);
}

/** The panel of a folded block. */
function foldPanel(page, item) {
  const nodes = item.places.map((place) => page.model.nodes[place]);
  const whole = item.repetition === null;
  return element(
    "div",
    { "data-panel": "block" },
    element("p", { class: "kind" }, "Repeated block"),
    element("h2", {}, foldTitle(item)),
    element(
      "p",
      {},
      `${nodes.length} nodes`,
      totalSeconds(nodes)
        ? `, ${timeText(totalSeconds(nodes))}, ${percentText(totalShare(nodes))} of a run`
        : "",
    ),
    totalSeconds(nodes) ? shareBar(totalShare(nodes)) : null,
    element(
      "p",
      {},
      element(
        "button",
        { type: "button", onclick: () => page.unfold(item.fold) },
        whole ? `Show the ${item.block.starts.length} repetitions` : "Show its nodes",
      ),
    ),
    section("Nodes", costTable(page, whole ? nodes.slice(0, repetitions(item.block)[0].length) : nodes)),
  );
}

function foldTitle(item) {
  const sizes = repetitions(item.block).map((places) => places.length);
  const [least, most] = [Math.min(...sizes), Math.max(...sizes)];
  const size = least === most ? least : `${least}–${most}`;
  return item.repetition === null
    ? `Block of ${size} nodes × ${sizes.length}`
    : `Block ${item.repetition + 1} of ${sizes.length}`;
}

function totalSeconds(nodes) {
  return nodes.reduce((sum, node) => sum + (node.seconds ?? 0), 0);
}

function totalShare(nodes) {
  return nodes.reduce((sum, node) => sum + node.share, 0);
}

function costTable(page, nodes) {
  return table(
    ["node", "#price", "#share"],
    nodes.map((node) => [
      element(
        "div",
        {},
        page.linkTo(node, nodeTitle(node)),
        element("div", { class: "proof" }, node.name),
      ),
      timeText(node.seconds),
      node.seconds === null ? "–" : percentText(node.share),
    ]),
  );
}

const MOST_LISTED = 12;

/** The panel of the whole model. */
function overviewPanel(page) {
  const model = page.graphs.program;
  const slowest = model.nodes
    .filter((node) => node.seconds)
    .sort((a, b) => b.seconds - a.seconds)
    .slice(0, MOST_LISTED);
  const moved = model.nodes.filter(isConversion);
  const refused = model.tensors.filter((tensor) =>
    tensor.pairs.some((pair) => pair.reason !== null),
  );
  return element(
    "div",
    { "data-panel": "overview" },
    element("p", { class: "kind" }, `Model, for ${model.target}`),
    element("h2", {}, model.model),
    element(
      "p",
      { class: "lead" },
      `A run is estimated at ${timeText(model.seconds)}. `,
      moved.length
        ? `${moved.length} kernels only move or fill elements.`
        : "No kernel only moves elements.",
    ),
    section("Where the time goes", costTable(page, slowest)),
    section(
      "Conversions and fills",
      moved.map((node) =>
        element(
          "p",
          {},
          page.linkTo(node, nodeTitle(node)),
          ` ${timeText(node.seconds)}${node.because ? `: ${node.because}` : ""}`,
        ),
      ),
    ),
    section(
      "Pairs of crop and pad that stay",
      refused.map((tensor) => element("p", {}, page.tensorLink(tensor.name))),
    ),
    section("Layouts", layoutCounts(model)),
    section("In one sentence", element("p", {}, sentence(model.summary))),
    section(
      "Keys",
      element(
        "p",
        {},
        element("kbd", {}, "/"),
        " search, ",
        element("kbd", {}, "Enter"),
        " next match, arrows go through the graph, ",
        element("kbd", {}, "+"),
        " ",
        element("kbd", {}, "−"),
        " ",
        element("kbd", {}, "0"),
        " zoom, ",
        element("kbd", {}, "f"),
        " fold or unfold, ",
        element("kbd", {}, "m"),
        " program, model or both, ",
        element("kbd", {}, "Esc"),
        " this overview",
      ),
    ),
  );
}

/** How many tensors between nodes have each layout. */
function layoutCounts(model) {
  const counts = new Map();
  const tensors = new Map(
    model.arrows.map((arrow) => [`${arrow.tensor} ${arrow.edge_type}`, arrow.edge_type]),
  );
  for (const edgeType of tensors.values()) {
    const name = layoutOf(model, edgeType)?.name ?? "–";
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const rows = [...counts].sort((a, b) => b[1] - a[1]).slice(0, MOST_LISTED);
  return table(
    ["layout", "#tensors"],
    rows.map(([name, count]) => [name, String(count)]),
  );
}
