// One graph in the page: its picture, its folds, and what of it matches a search.

class GraphView {
  /** A view of `model` in the element `root`; `page` is told of what is clicked. */
  constructor(page, model, root) {
    Object.assign(this, { page, model, root });
    this.folds = firstFolds(model);
    this.matches = null;
    this.turn = -1;
    this.svg = root.querySelector("svg");
    this.scene = svgElement("g");
    this.svg.append(hatchPattern(`hatch-${root.dataset.view}`), this.scene);
    this.viewport = new Viewport(this.svg, this.scene, root.querySelector("canvas"));
    root.addEventListener("pointerdown", () => page.activate(this), { capture: true });
    root.addEventListener("focusin", () => page.activate(this));
  }

  get isShown() {
    return !this.root.hidden;
  }

  /** Draw the graph if it was not yet. */
  async show() {
    if (!this.items) {
      await this.draw();
      this.viewport.begin();
    }
  }

  // The picture --------------------------------------------------------------------------------

  /** Lay out and draw what is shown while the present folds are closed. */
  async draw() {
    const items = shownItems(this.model, this.folds).map((item) => sizedItem(this.model, item));
    const edges = shownEdges(this.model, items);
    this.say(`Laying out ${items.length} boxes …`);
    this.drawing = (this.drawing ?? 0) + 1;
    const turn = this.drawing;
    const found = await (await this.page.layOut)(elkGraph(items, edges));
    if (turn !== this.drawing) return;
    this.place(items, edges, found);
    this.say("");
  }

  place(items, edges, found) {
    const places = new Map(found.children.map((child) => [child.id, child]));
    const lines = new Map(found.edges.map((edge) => [edge.id, edge.sections]));
    this.items = items.map((item) => ({
      ...item,
      x: places.get(item.id).x,
      y: places.get(item.id).y,
    }));
    this.edges = edges.map((edge) => ({ ...edge, sections: lines.get(edge.id) }));
    this.nodes = new Map(this.items.map((item) => [item.id, drawnItem(this, item)]));
    this.lines = this.edges.map((edge) => ({ edge, node: drawnEdge(this, edge) }));
    const frames = openRepetitions(this.model, this.folds).map((part) =>
      drawnFrame(
        this,
        part,
        this.items.filter((item) => part.places.includes(item.places[0])),
      ),
    );
    this.scene.replaceChildren(
      ...frames,
      ...this.lines.map((line) => line.node),
      ...this.nodes.values(),
    );
    this.viewport.size = { width: found.width, height: found.height };
    this.viewport.top = this.items[0].x + this.items[0].width / 2;
    this.showMatches();
    this.showChosen();
  }

  say(text) {
    this.root.querySelector(".progress").textContent = text;
  }

  itemOf(place) {
    return this.items?.find((item) => item.places.includes(place));
  }

  // Folds --------------------------------------------------------------------------------------

  async refold(folds) {
    this.folds = folds;
    await this.draw();
  }

  /** Open a fold, and keep the place where it was in view. */
  async unfold(fold) {
    const item = this.items.find((one) => one.fold === fold);
    await this.refold(new Set([...this.folds].filter((one) => one !== fold)));
    this.viewport.center(this.itemOf(item.places[0]));
    this.open({ item: this.itemOf(item.places[0]) });
  }

  /** Close the innermost open fold around an item, or open the item if it is a fold. */
  async toggleFold(item) {
    if (item.fold !== null) {
      await this.unfold(item.fold);
      return;
    }
    const over = foldsOver(this.model, item.places[0]);
    if (over.length) await this.fold({ fold: over[1], places: item.places });
  }

  /** Show a repetition of a block as one box. */
  async fold({ fold, places }) {
    await this.refold(new Set([...this.folds, fold]));
    this.open({ item: this.itemOf(places[0]) });
    this.viewport.center(this.itemOf(places[0]));
  }

  /** Open the folds over a node, if there are closed ones. */
  async reveal(place) {
    const over = foldsOver(this.model, place).filter((fold) => this.folds.has(fold));
    if (over.length)
      await this.refold(new Set([...this.folds].filter((fold) => !over.includes(fold))));
  }

  // What is marked -----------------------------------------------------------------------------

  /** Show an item or a tensor of this graph in the panel. */
  open(chosen) {
    this.page.activate(this);
    this.page.open(chosen);
  }

  /** Mark what is in the panel, and in the other graph the nodes that are linked to it. */
  showChosen() {
    const { item, tensor, edgeType } = this.page.chosen ?? {};
    const own = this.page.active === this;
    const twins = own ? new Set() : twinPlaces(item, this.page.active.model);
    for (const one of this.items ?? []) {
      const node = this.nodes.get(one.id);
      node.classList.toggle("chosen", own && one.id === item?.id);
      node.classList.toggle(
        "twin",
        one.places.some((place) => twins.has(place)),
      );
    }
    for (const { edge, node } of this.lines ?? []) {
      const [arrow] = edge.arrows;
      const same = arrow.tensor === tensor && (edgeType ?? arrow.edge_type) === arrow.edge_type;
      node.classList.toggle("chosen", same);
      const near = own && item !== undefined && [edge.start, edge.end].includes(item.id);
      node.classList.toggle("near", near);
    }
    const [first] = [...twins].sort((a, b) => a - b);
    if (first !== undefined && this.isShown && this.items) this.viewport.center(this.itemOf(first));
  }

  search(text, filters) {
    this.matches = matchingPlaces(this.model, text, filters);
    this.turn = -1;
    this.showMatches();
  }

  showMatches() {
    const wanted = this.matches === null ? null : new Set(this.matches);
    const matched = new Set(
      (this.items ?? [])
        .filter((item) => wanted === null || item.places.some((place) => wanted.has(place)))
        .map((item) => item.id),
    );
    for (const [id, node] of this.nodes ?? []) node.classList.toggle("dimmed", !matched.has(id));
    for (const { edge, node } of this.lines ?? []) {
      node.classList.toggle("dimmed", !(matched.has(edge.start) && matched.has(edge.end)));
    }
    this.viewport.marks = (this.items ?? []).map((item) => ({
      x: item.x,
      y: item.y,
      width: item.width,
      height: item.height,
      dim: !matched.has(item.id),
      red:
        matched.has(item.id) && item.places.some((place) => isConversion(this.model.nodes[place])),
    }));
    this.viewport.show();
    this.page.showFound();
  }

  /** The next match, or the one before; undefined if there are none. */
  nextMatch(step) {
    if (!this.matches?.length) return undefined;
    const count = this.matches.length;
    this.turn = this.turn < 0 && step < 0 ? count - 1 : (this.turn + step + count) % count;
    return this.model.nodes[this.matches[this.turn]];
  }

  /** Open the next item in the order of the run, or the one before. */
  step(by) {
    const at = this.items.findIndex((item) => item.id === this.page.chosen?.item?.id);
    const next = this.items[Math.min(Math.max(0, at + by), this.items.length - 1)];
    this.viewport.center(next);
    this.open({ item: next });
  }
}

/** The places in the other graph of the nodes that are linked to those of an item of `model`. */
function twinPlaces(item, model) {
  const nodes = (item?.places ?? []).map((place) => model.nodes[place]);
  return new Set(
    nodes
      .flatMap((node) => [...(node.becameNodes ?? []), ...(node.importedAs ?? [])])
      .map((node) => node.place),
  );
}
