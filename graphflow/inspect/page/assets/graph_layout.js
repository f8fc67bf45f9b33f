// Layout of the graph in layers, by elkjs in a worker, so that the page answers meanwhile.

const OPTIONS = {
  "elk.algorithm": "layered",
  "elk.direction": "DOWN",
  "elk.edgeRouting": "ORTHOGONAL",
  "elk.layered.spacing.nodeNodeBetweenLayers": "34",
  "elk.layered.spacing.edgeNodeBetweenLayers": "14",
  "elk.layered.spacing.edgeEdgeBetweenLayers": "8",
  "elk.spacing.nodeNode": "26",
  "elk.spacing.edgeNode": "18",
  "elk.spacing.edgeEdge": "8",
  "elk.layered.nodePlacement.strategy": "BRANDES_KOEPF",
  "elk.layered.nodePlacement.bk.fixedAlignment": "BALANCED",
  "elk.layered.considerModelOrder.strategy": "NODES_AND_EDGES",
};

// For large graphs: half the time, and a few more crossings.
const HASTY = {
  "elk.layered.thoroughness": "1",
  "elk.layered.layering.strategy": "LONGEST_PATH_SOURCE",
  "elk.layered.crossingMinimization.greedySwitch.type": "OFF",
};
const MOST_CAREFUL = 300;

/** A function that lays out a graph: a promise of the places of its nodes and edges. */
async function layoutEngine() {
  const source = await unpacked("packed-layout-library");
  const worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  const waiting = new Map();
  let number = 0;
  worker.onmessage = ({ data }) => {
    const { resolve, reject } = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.error) reject(new Error(data.error.message ?? data.error));
    else resolve(data.data);
  };
  const ask = (message) =>
    new Promise((resolve, reject) => {
      number += 1;
      waiting.set(number, { resolve, reject });
      worker.postMessage({ id: number, ...message });
    });
  await ask({ cmd: "register", algorithms: ["layered"] });
  return (graph) => ask({ cmd: "layout", graph, layoutOptions: {}, options: {} });
}

/** The graph in the form that elkjs takes. */
function elkGraph(items, edges) {
  return {
    id: "graph",
    layoutOptions: items.length > MOST_CAREFUL ? { ...OPTIONS, ...HASTY } : OPTIONS,
    children: items.map(({ id, width, height }) => ({ id, width, height })),
    edges: edges.map(({ id, start, end }) => ({ id, sources: [start], targets: [end] })),
  };
}
