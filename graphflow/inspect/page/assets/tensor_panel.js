// The panel of a tensor: what was decided about an edge, and why.

/** The contents of the panel; `edgeType` is the one of the edge that was clicked. */
function tensorPanel(page, tensor, edgeType) {
  const { model } = page;
  const shown = edgeType ?? tensor.edge_type;
  const layout = layoutOf(model, shown);
  return element(
    "div",
    { "data-panel": "tensor" },
    element("p", { class: "kind" }, `Tensor, ${tensor.where}`),
    element("h2", {}, tensor.name),
    element(
      "div",
      { class: "chips" },
      layout && element("span", { class: `chip ${familyClass(model, shown)}` }, layout.name),
      element(
        "span",
        { class: "chip neutral" },
        `${tensor.dtype} ${shapeText(tensor.logical_shape)}`,
      ),
    ),
    element("p", { class: "lead" }, tensorSentence(tensor, layout)),
    section("Changes", changesTable(model.changesOf.get(tensor.name) ?? [])),
    section("Box", boxPictures(model, tensor, shown)),
    section("Shapes", layout && shapesTable(tensor, layout)),
    section("Memory", memoryOf(page, tensor)),
    section("Padding", layout && paddingTable(model, tensor, layout, shown)),
    section(
      "Why this layout",
      element("p", {}, sentence(tensor.reason)),
      element("p", { class: "proof" }, `Decided by ${tensor.decided_by}.`),
      tensor.notes.map((note) => element("p", {}, sentence(note))),
    ),
    section("Written by", writers(page, tensor)),
    section("Read by", readings(page, tensor)),
    section("Conversions", conversionsOf(page, tensor)),
    section(
      "Crop and pad",
      tensor.pairs.map((pair) => pairText(page, pair)),
    ),
    section(
      "Other layouts, with the best plan for each",
      othersTable(tensor.others, "edge type"),
      pinHint(model, tensor),
    ),
    section("Pinned to another layout, and planned again", pinsOf(page, tensor)),
  );
}

/** How to ask for the cheapest of the other layouts that has a name. */
function pinHint(model, tensor) {
  const priced = tensor.others.filter(
    (other) => other.extra !== null && /^\w+( \[|$)/.test(other.name),
  );
  if (!priced.length) return null;
  const [first] = [...priced].sort((a, b) => a.extra - b.extra);
  const [key, layout] = [tensor.name, first.name.split(" ")[0]].map((text) => JSON.stringify(text));
  const pin = `layouts={${key}: ${layout}}`;
  return element(
    "p",
    { class: "proof" },
    "A pin asks for one of them: ",
    element("code", {}, pin),
    ". The other tensors then take what fits it best.",
  );
}

/** What each pin costs, and what it changes elsewhere; then the pins that were not planned. */
function pinsOf(page, tensor) {
  const [priced, others] = [true, false].map((wanted) =>
    tensor.pins.filter((pin) => (pin.seconds !== null) === wanted),
  );
  return [
    ...priced.map((pin) => pinDetails(page, tensor, pin)),
    ...[...Map.groupBy(others, (pin) => pin.because)].map(([because, alike]) =>
      element("p", { class: "proof" }, `${alike.map((pin) => pin.layout).join(", ")}: ${because}.`),
    ),
  ];
}

/** A pin: its price, and when it is opened everything that it changes. */
function pinDetails(page, tensor, pin) {
  const elsewhere = pin.changes.filter((change) => change.name !== tensor.name);
  const counted = Object.entries({ layout: "tensor", variant: "kernel", copy: "copy" })
    .map(([kind, what]) => {
      const count = new Set(elsewhere.filter((c) => c.kind === kind).map((c) => c.name)).size;
      return count ? `${count} ${count > 1 ? what.replace(/y$/, "ie") + "s" : what}` : null;
    })
    .filter(Boolean);
  const change = counted.length ? `changed with it: ${counted.join(", ")}` : "nothing else changes";
  return element(
    "details",
    { "data-pin": pin.layout },
    element(
      "summary",
      {},
      element("strong", {}, pin.layout),
      `: a run takes ${timeText(pin.seconds)} more; ${change}`,
    ),
    table(
      ["what", "before", "after"],
      pin.changes.map((one) => [
        element(
          "div",
          {},
          one.kind === "variant" ? page.nodeLink(one.name) : page.tensorLink(one.name),
          element("div", { class: "proof" }, one.kind),
        ),
        one.before,
        one.after,
      ]),
    ),
  );
}

/** One plain sentence about the decision. */
function tensorSentence(tensor, layout) {
  if (layout === null) return sentence(`${tensor.where}: ${tensor.reason}`);
  const padding = layout.padding_elements
    ? `, with ${layout.padding_elements} elements of padding`
    : ", without padding";
  const place = tensor.place ? `, ${tensor.place}` : "";
  const box = shapeText(layout.physical_shape);
  return `Stored as ${layout.name} in ${box} elements${padding}${place}.`;
}

/** A recorded text as a sentence; a name at its beginning is left as it is. */
function sentence(text) {
  if (!text) return "";
  const isWord = /^[a-z]+[ ,]/.test(text);
  const beginning = isWord ? text[0].toUpperCase() : text[0];
  return `${beginning}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;
}

function shapesTable(tensor, layout) {
  const bytes = tensor.element_bytes
    ? bytesText(layout.physical_shape.reduce((a, b) => a * b, 1) * tensor.element_bytes)
    : null;
  return table(
    ["", "shape"],
    [
      ["logical", shapeText(tensor.logical_shape)],
      ["physical", shapeText(layout.physical_shape)],
      ...(layout.physical.length ? [["index map", indexMapText(layout)]] : []),
      ...(bytes ? [["memory", bytes]] : []),
    ],
  );
}

function indexMapText(layout) {
  const inputs = layout.logical_shape.map((_, axis) => `i${axis}`);
  return `(${inputs.join(", ")}) → (${layout.physical.map((code) => codeText(code)).join(", ")})`;
}

/** An index expression in words of arithmetic. */
function codeText(code, inside = false) {
  if (!Array.isArray(code)) return String(code);
  const [operation, ...operands] = code;
  if (operation === "min" || operation === "max") {
    return `${operation}(${operands.map((operand) => codeText(operand)).join(", ")})`;
  }
  const separator = operation === "*" ? "·" : ` ${operation} `;
  const text = operands.map((operand) => codeText(operand, true)).join(separator);
  return inside && operation !== "*" ? `(${text})` : text;
}

/** Each region of the box, and what it holds. */
function paddingTable(model, tensor, layout, edgeType) {
  const facts = new Map(model.edge_types[edgeType].facts);
  if (!layout.padding_elements) return element("p", {}, "The box has no padding.");
  return table(
    ["region", "holds"],
    layout.regions.map((region) => [region, facts.get(region) ?? "the elements"]),
  );
}

function writers(page, tensor) {
  const input = page.graphs.program.nodes.find(
    (node) => node.kind === "input" && node.outputs[0] === tensor.name,
  );
  if (tensor.producer === null) {
    const text = { constant: "A constant, known before the first run." }[tensor.where];
    if (input) return element("p", {}, "The caller: it is an input of the model.");
    return text ? element("p", {}, text) : null;
  }
  return element("p", {}, page.nodeLink(tensor.producer));
}

/** Who reads the tensor, what they require, and the proof that they get it. */
function readings(page, tensor) {
  if (!tensor.readings.length) {
    return tensor.consumers.length
      ? element(
          "ul",
          {},
          tensor.consumers.map((name) => element("li", {}, page.nodeLink(name))),
        )
      : null;
  }
  return element(
    "ul",
    {},
    tensor.readings.map((use) =>
      element(
        "li",
        {},
        page.nodeLink(use.consumer),
        use.buffer ? ` reads it as input ${use.position} (${use.buffer})` : " reads it",
        ` in ${use.layout}`,
        use.conversion ? `, from a copy (${use.conversion}, below)` : "",
        `; its demand on the padding: ${use.demand}.`,
        use.proofs.map((proof) => element("div", { class: "proof" }, `Proof: ${proof}`)),
      ),
    ),
  );
}

/** The copies that are made of the tensor, and why. */
function conversionsOf(page, tensor) {
  const made = page.graphs.program.nodes.filter(
    (node) => isConversion(node) && node.inputs.some(([, name]) => name === tensor.name),
  );
  return made.map((node) =>
    element(
      "p",
      { class: "warning" },
      page.linkTo(node, nodeTitle(node)),
      ` (${timeText(node.seconds)}): ${node.because}`,
    ),
  );
}

/** A pair of crop and pad in words: cancelled with its proofs, or refused. */
function pairText(page, pair) {
  const reader = page.nodeLink(pair.consumer);
  if (pair.reason !== null) {
    return element(
      "div",
      { class: "pair" },
      element("p", { class: "warning" }, "The pair before ", reader, ` stays: ${pair.reason}.`),
      element("p", {}, `Instead: ${pair.repair}.`),
    );
  }
  return element(
    "div",
    { class: "pair" },
    element("p", {}, "The crop and the pad before ", reader, " were cancelled."),
    pair.proofs.map((proof) => element("p", { class: "proof" }, `Proof: ${proof}`)),
  );
}

/** The candidates that were not taken, those of the best plans first: what they are called, and
 * their variant if that differs. */
function othersTable(others, what) {
  if (!others.length) return null;
  const sorted = [...others].sort((a, b) => (a.extra ?? Infinity) - (b.extra ?? Infinity));
  return table(
    [what, "#alone", "#plan with it"],
    sorted.map((other) => [
      element(
        "div",
        {},
        other.name,
        other.variant === other.name
          ? null
          : element("div", { class: "proof" }, `variant ${other.variant}`),
      ),
      timeText(other.seconds) + (other.measured ? " measured" : ""),
      other.extra === null ? other.price : `+ ${timeText(other.extra)}`,
    ]),
  );
}
