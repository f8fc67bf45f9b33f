// Search and filters: which nodes match, and going from one match to the next.

const FILTERS = {
  conversions: {
    title: "Conversions",
    explained: "Kernels that only move or fill elements",
    matches: (model, node) => isConversion(node),
  },
  padding: {
    title: "Padding",
    explained: "Nodes that read or write a padded tensor",
    matches: (model, node) =>
      [...node.arrowsIn, ...node.arrowsOut].some((arrow) => isPadded(model, arrow.edge_type)),
  },
  changed: {
    title: "Changed",
    explained: "Nodes that write a tensor about which the plans differ",
    matches: (model, node) => changesAt(model, node).length > 0,
  },
  slow: {
    title: "Slow",
    explained: "The nodes that together take half of a run",
    matches: (model, node) => model.slow.has(node.place),
  },
};

/** The filters that can find something in a page: a comparison has changes, and no prices. */
function usableFilters(model) {
  return Object.entries(FILTERS).filter(
    ([name]) =>
      (name === "changed" ? model.compared !== null : true) && (name !== "slow" || model.slow.size),
  );
}

/** The places of the nodes that match the text and all filters; null if nothing is asked for. */
function matchingPlaces(model, text, filters) {
  const words = text.trim().toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length && !filters.size) return null;
  return model.nodes
    .filter(
      (node) =>
        [...filters].every((name) => FILTERS[name].matches(model, node)) &&
        words.every((word) => searchText(model, node).includes(word)),
    )
    .map((node) => node.place);
}

/** What is searched of a node: its names, operators, tensors and layouts. */
function searchText(model, node) {
  node.searched ??= [
    node.kind,
    node.name,
    nodeTitle(node),
    node.variant ?? "",
    ...node.operators,
    ...node.origins,
    ...node.outputs,
    ...node.inputs.map(([, tensor]) => tensor),
    ...[...node.arrowsIn, ...node.arrowsOut].map(
      (arrow) => layoutOf(model, arrow.edge_type)?.name ?? "",
    ),
  ]
    .join("\n")
    .toLowerCase();
  return node.searched;
}
