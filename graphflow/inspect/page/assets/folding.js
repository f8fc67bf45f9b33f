// Repeated blocks: which of them are folded, and the items that are then shown.
//
// A block has two folds: all of its repetitions as one item ("b3"), and each repetition as one
// ("b3r0").  An item is a node, or a fold with the places of its nodes.

const MOST_UNFOLDED = 60; // graphs of more nodes begin folded

/** The folds that are closed at first: all blocks of a large graph. */
function firstFolds(model) {
  return model.nodes.length > MOST_UNFOLDED ? allFolds(model) : new Set();
}

/** Every fold of the model. */
function allFolds(model) {
  return new Set(
    model.blocks.flatMap((block, number) => [
      `b${number}`,
      ...repetitions(block).map((_, k) => `b${number}r${k}`),
    ]),
  );
}

/** The places of the nodes of each repetition of a block. */
function repetitions(block) {
  return block.starts.map((start, k) => {
    const after = block.starts[k + 1] ?? block.after;
    return Array.from({ length: after - start }, (_, j) => start + j);
  });
}

/** The items that are shown while these folds are closed, in the order of the run. */
function shownItems(model, folds) {
  const items = [];
  let next = 0;
  model.blocks.forEach((block, number) => {
    items.push(...nodeItems(next, block.starts[0]));
    items.push(...blockItems(block, number, folds));
    next = block.after;
  });
  return [...items, ...nodeItems(next, model.nodes.length)];
}

function nodeItems(first, after) {
  return Array.from({ length: after - first }, (_, k) => ({
    id: `n${first + k}`,
    places: [first + k],
    fold: null,
  }));
}

function blockItems(block, number, folds) {
  const parts = repetitions(block);
  const whole = `b${number}`;
  if (folds.has(whole)) {
    return [{ id: whole, places: parts.flat(), fold: whole, block, repetition: null }];
  }
  return parts.flatMap((places, k) => {
    const fold = `${whole}r${k}`;
    if (folds.has(fold)) return [{ id: fold, places, fold, block, repetition: k }];
    return nodeItems(places[0], places[0] + places.length);
  });
}

/** The open repetitions of blocks: each with its fold and the places of its nodes. */
function openRepetitions(model, folds) {
  return model.blocks.flatMap((block, number) => {
    if (folds.has(`b${number}`)) return [];
    return repetitions(block)
      .map((places, repetition) => ({
        block,
        repetition,
        places,
        fold: `b${number}r${repetition}`,
      }))
      .filter(({ fold }) => !folds.has(fold));
  });
}

/** The folds that hide a node, the outer one first. */
function foldsOver(model, place) {
  const number = model.blocks.findIndex(
    (block) => place >= block.starts[0] && place < block.after,
  );
  if (number < 0) return [];
  const block = model.blocks[number];
  return [`b${number}`, `b${number}r${block.starts.findLastIndex((start) => start <= place)}`];
}

/** The edges between shown items: arrows of equal ends and edge types are one. */
function shownEdges(model, items) {
  const itemOf = new Map(items.flatMap((item) => item.places.map((place) => [place, item.id])));
  const edges = new Map();
  for (const arrow of model.arrows) {
    const [start, end] = [itemOf.get(arrow.start), itemOf.get(arrow.end)];
    if (start === end) continue;
    const key = `${start} ${end} ${arrow.tensor} ${arrow.edge_type}`;
    if (!edges.has(key)) edges.set(key, { id: `e${edges.size}`, start, end, arrows: [] });
    edges.get(key).arrows.push(arrow);
  }
  return [...edges.values()];
}
