// The model that the page shows: the values of page_data.py, with indices over them.

/** A packed text of the page: gzip in base64. */
async function unpacked(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (c) =>
    c.charCodeAt(0),
  );
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

/** The two graphs of a model, the `program` and the model as `imported`, each with the tensors,
 * layouts and kernels that both share. */
function indexedGraphs(values) {
  const tensorByName = new Map(values.tensors.map((tensor) => [tensor.name, tensor]));
  const changesOf = Map.groupBy(values.changes, (change) => change.name);
  const shared = { ...values, tensorByName, changesOf, families: families(values) };
  const program = indexedGraph(shared, "program");
  const imported = indexedGraph(shared, "imported");
  program.nodes.forEach((node) => {
    node.importedAs = [];
  });
  for (const node of imported.nodes) {
    node.becameNodes = node.became.map((place) => program.nodes[place]);
    node.becameNodes.forEach((made) => made.importedAs.push(node));
  }
  return { program, imported };
}

/** A graph with indices: nodes by name, arrows by node. */
function indexedGraph(shared, name) {
  const model = { ...shared, ...shared[name], nodeByName: new Map() };
  model.nodes.forEach((node, place) => {
    Object.assign(node, { place, graph: name, arrowsIn: [], arrowsOut: [] });
    if (!isEnd(node) && !model.nodeByName.has(node.name)) model.nodeByName.set(node.name, node);
  });
  model.arrows.forEach((arrow, place) => {
    arrow.place = place;
    model.nodes[arrow.start].arrowsOut.push(arrow);
    model.nodes[arrow.end].arrowsIn.push(arrow);
  });
  model.greatestSeconds = Math.max(1e-12, ...model.nodes.map((node) => node.seconds ?? 0));
  if (name === "program") addMeasuredTimes(model);
  model.slow = slowNodes(model.nodes, model.run?.step_seconds ?? model.seconds);
  return model;
}

/** Whether a node stands for the caller, who gives inputs, takes outputs, and checks tensors. */
function isEnd(node) {
  return ["input", "output", "check"].includes(node.kind);
}

/** The differences from the other plan around a node: those of the tensors that it writes. */
function changesAt(model, node) {
  return node.outputs.flatMap((name) => model.changesOf.get(name) ?? []);
}

/** Whether a node does nothing but move or fill elements. */
function isConversion(node) {
  return ["move", "convert", "copy", "fill"].includes(node.kind);
}

/** The nodes that together take most of a run, the slowest first: at least half of its time, if it
 * was measured, else of its price. */
function slowNodes(nodes, total) {
  const cost = (node) => node.measuredSeconds ?? node.seconds;
  const priced = nodes.filter(cost).sort((a, b) => cost(b) - cost(a));
  const slow = new Set();
  let sum = 0;
  for (const node of priced) {
    if (sum >= total / 2) break;
    slow.add(node.place);
    sum += cost(node);
  }
  return slow;
}

/** Give each node of the program the time of its steps, where a run was measured. */
function addMeasuredTimes(model) {
  model.run?.nodes.forEach((place, number) => {
    if (place === null) return;
    const node = model.nodes[place];
    node.steps = [...(node.steps ?? []), model.run.profile.steps[number]];
    node.measuredSeconds = (node.measuredSeconds ?? 0) + model.run.profile.steps[number].seconds;
  });
}

function layoutOf(model, edgeType) {
  return edgeType === null ? null : model.layouts[model.edge_types[edgeType].layout];
}

function isPadded(model, edgeType) {
  const layout = layoutOf(model, edgeType);
  return layout !== null && layout.padding_elements > 0;
}

/** The class that colours a layout: families have fixed colours, others take the next free one. */
function families(model) {
  const fixed = {
    "row-major": "plain",
    NCHW: "plain",
    NCW: "plain",
    NCDHW: "plain",
    NHWC: "last",
    NWC: "last",
    NDHWC: "last",
    NCHW16c: "blocked",
    NCW16c: "blocked",
    NCDHW16c: "blocked",
    NCHW8c: "half-blocked",
    NCW8c: "half-blocked",
    NCDHW8c: "half-blocked",
    "index map": "mapped",
    "permuted axes": "mapped",
  };
  const found = new Map();
  const others = ["other-1", "other-2", "other-3"];
  for (const arrow of [...model.program.arrows, ...model.imported.arrows]) {
    const layout = layoutOf(model, arrow.edge_type);
    if (layout === null || found.has(layout.family)) continue;
    found.set(layout.family, fixed[layout.family] ?? others.shift() ?? "mapped");
  }
  return found;
}

function familyClass(model, edgeType) {
  const layout = layoutOf(model, edgeType);
  return layout === null ? "layout-none" : `layout-${model.families.get(layout.family) ?? "plain"}`;
}

/** The operators of a node as its title. */
function nodeTitle(node) {
  const titles = {
    input: "Input",
    output: "Output",
    check: "Check",
    copy: "Copy of a constant",
    convert: "Conversion",
    fill: "Fill padding",
  };
  if (titles[node.kind] && !node.operators.length) return titles[node.kind];
  if (node.kind === "convert" || node.kind === "fill" || node.kind === "copy") {
    return `${titles[node.kind]}: ${node.operators.join(", ")}`;
  }
  return node.operators.join(" + ") || node.name;
}

/** The tensor that a node writes first, or, for an output of the model, reads. */
function mainTensor(model, node) {
  const name = node.outputs[0] ?? node.inputs[0]?.[1];
  return model.tensorByName.get(name) ?? null;
}

/** The edge type in which a node hands on its tensor: that of its arrows, or of the decision. */
function mainEdgeType(model, node) {
  if (node.kind === "output" || node.kind === "check") return node.arrowsIn[0]?.edge_type ?? null;
  const out = node.arrowsOut.find((arrow) => arrow.tensor === node.outputs[0]);
  if (out !== undefined) return out.edge_type;
  return isConversion(node) ? null : (mainTensor(model, node)?.edge_type ?? null);
}
