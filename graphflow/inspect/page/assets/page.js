// The page: its state, and what happens when something is asked of it.

class Page {
  constructor(graphs, layOut) {
    Object.assign(this, { graphs, layOut, model: graphs.program });
    this.foldsOf = new Map(Object.values(graphs).map((graph) => [graph, firstFolds(graph)]));
    this.filters = new Set();
    this.matches = null;
    this.chosen = null;
    this.svg = document.getElementById("picture");
    this.panel = document.getElementById("panel");
    this.scene = svgElement("g");
    this.svg.append(hatchPattern(), this.scene);
    this.viewport = new Viewport(this.svg, this.scene, document.getElementById("minimap"));
    document.getElementById("legend").append(...legendEntries(this.model));
    this.listen();
    this.openOverview();
  }

  // The picture --------------------------------------------------------------------------------

  /** Lay out and draw what is shown while the present folds are closed. */
  async draw() {
    const items = shownItems(this.model, this.folds).map((item) => sizedItem(this.model, item));
    const edges = shownEdges(this.model, items);
    this.say(`Laying out ${items.length} boxes …`);
    this.drawing = (this.drawing ?? 0) + 1;
    const turn = this.drawing;
    const found = await (await this.layOut)(elkGraph(items, edges));
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
    document.getElementById("progress").textContent = text;
  }

  itemOf(place) {
    return this.items?.find((item) => item.places.includes(place));
  }

  /** The closed folds of the graph that is shown. */
  get folds() {
    return this.foldsOf.get(this.model);
  }

  /** Show the other graph of the model. */
  async turnTo(name) {
    if (this.model === this.graphs[name]) return;
    this.model = this.graphs[name];
    this.items = this.nodes = this.lines = null;
    document
      .querySelectorAll("#graphs button")
      .forEach((button) => button.setAttribute("aria-pressed", button.dataset.graph === name));
    this.search();
    await this.draw();
    this.viewport.begin();
  }

  async refold(folds) {
    this.foldsOf.set(this.model, folds);
    await this.draw();
  }

  /** Open a fold, and keep the place where it was in view. */
  async unfold(fold) {
    const item = this.items.find((one) => one.fold === fold);
    await this.refold(new Set([...this.folds].filter((one) => one !== fold)));
    this.viewport.center(this.itemOf(item.places[0]));
    this.open({ item: this.itemOf(item.places[0]) });
  }

  /** Close the innermost open fold around the chosen node, or open the chosen fold. */
  async toggleFold() {
    const item = this.chosen?.item;
    if (!item) return;
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

  // The panel ----------------------------------------------------------------------------------

  /** Show an item or a tensor in the panel. */
  open(chosen) {
    if (this.viewport.dragged) return;
    this.chosen = chosen;
    this.panel.replaceChildren(this.contents(chosen));
    this.panel.scrollTop = 0;
    this.showChosen();
  }

  contents({ item, tensor, edgeType }) {
    if (tensor !== undefined)
      return tensorPanel(this, this.model.tensorByName.get(tensor), edgeType);
    return item.node === null ? foldPanel(this, item) : nodePanel(this, item.node);
  }

  openOverview() {
    this.chosen = null;
    this.panel.replaceChildren(
      this.model.compared === null ? overviewPanel(this) : differencePanel(this),
    );
    this.showChosen();
  }

  /** Show a panel about the whole run. */
  openPanel(contents) {
    this.chosen = null;
    this.panel.replaceChildren(contents);
    this.panel.scrollTop = 0;
    this.showChosen();
  }

  /** Show a node of either graph in the panel and in the middle of the picture. */
  async go(node) {
    await this.turnTo(node.graph);
    await this.reveal(node.place);
    const item = this.itemOf(node.place);
    this.viewport.dragged = false;
    this.viewport.center(item);
    this.open({ item });
  }

  /** Show a tensor in the panel, and its edge in the picture if it is there. */
  goToTensor(name, edgeType) {
    this.viewport.dragged = false;
    this.open({ tensor: name, edgeType });
  }

  showChosen() {
    const { item, tensor, edgeType } = this.chosen ?? {};
    for (const [id, node] of this.nodes ?? []) node.classList.toggle("chosen", id === item?.id);
    for (const { edge, node } of this.lines ?? []) {
      const [arrow] = edge.arrows;
      const same = arrow.tensor === tensor && (edgeType ?? arrow.edge_type) === arrow.edge_type;
      node.classList.toggle("chosen", same);
      node.classList.toggle("near", item !== undefined && [edge.start, edge.end].includes(item.id));
    }
  }

  // Links --------------------------------------------------------------------------------------

  link(text, follow) {
    return element(
      "a",
      {
        class: "link",
        href: "#",
        onclick: (event) => {
          event.preventDefault();
          follow();
        },
      },
      text,
    );
  }

  linkTo(node, text) {
    return this.link(text, () => this.go(node));
  }

  /** A link to a node of the program; its name alone if there is none. */
  nodeLink(name) {
    const node = this.graphs.program.nodeByName.get(name);
    return node === undefined ? name : this.linkTo(node, `${nodeTitle(node)} (${name})`);
  }

  tensorLink(name, edgeType = null) {
    if (!this.model.tensorByName.has(name)) return name;
    return this.link(name, () => this.goToTensor(name, edgeType));
  }

  // Search and filters -------------------------------------------------------------------------

  search() {
    const text = document.getElementById("search").value;
    this.matches = matchingPlaces(this.model, text, this.filters);
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
    const place = this.turn >= 0 ? `${this.turn + 1} of ` : "";
    document.getElementById("found").textContent =
      wanted === null ? "" : `${place}${this.matches.length}`;
  }

  /** Go to the next match, or to the one before. */
  async nextMatch(step) {
    if (!this.matches?.length) return;
    const count = this.matches.length;
    this.turn = this.turn < 0 && step < 0 ? count - 1 : (this.turn + step + count) % count;
    await this.go(this.model.nodes[this.matches[this.turn]]);
    this.showMatches();
  }

  toggleFilter(name, button) {
    const on = !this.filters.has(name);
    if (on) this.filters.add(name);
    else this.filters.delete(name);
    button.setAttribute("aria-pressed", on);
    this.search();
  }

  // Keys ---------------------------------------------------------------------------------------

  listen() {
    const on = (id, act) => document.getElementById(id).addEventListener("click", act);
    on("zoom-in", () => this.viewport.zoom(1.3));
    on("zoom-out", () => this.viewport.zoom(1 / 1.3));
    on("zoom-fit", () => this.viewport.fit());
    document.getElementById("graphs").hidden = !this.graphs.imported.nodes.length;
    for (const button of document.querySelectorAll("#graphs button")) {
      button.addEventListener("click", () => this.turnTo(button.dataset.graph));
    }
    on("fold-all", () => this.refold(allFolds(this.model)).then(() => this.viewport.begin()));
    on("unfold-all", () => this.refold(new Set()).then(() => this.viewport.begin()));
    on("show-overview", () => this.openOverview());
    on("show-run", () => this.openPanel(runPanel(this)));
    on("show-memory", () => this.openPanel(memoryPanel(this)));
    document.getElementById("show-memory").hidden = !hasMemory(this.model);
    document.getElementById("show-run").hidden = this.model.run === null;
    const search = document.getElementById("search");
    search.addEventListener("input", () => this.search());
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.nextMatch(event.shiftKey ? -1 : 1);
    });
    document
      .getElementById("filters")
      .append(
        ...usableFilters(this.model).map(([name, filter]) =>
          element(
            "button",
            {
              type: "button",
              title: filter.explained,
              "aria-pressed": "false",
              "data-filter": name,
              onclick: (event) => this.toggleFilter(name, event.currentTarget),
            },
            filter.title,
          ),
        ),
      );
    document.addEventListener("keydown", (event) => this.press(event));
    window.addEventListener("beforeprint", () => this.viewport.fit());
  }

  press(event) {
    const typing = event.target.matches("input, select, pre, canvas");
    if (event.key === "Escape") {
      document.getElementById("search").value = "";
      this.search();
      this.openOverview();
    }
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      "/": () => document.getElementById("search").focus(),
      "+": () => this.viewport.zoom(1.3),
      "=": () => this.viewport.zoom(1.3),
      "-": () => this.viewport.zoom(1 / 1.3),
      0: () => this.viewport.fit(),
      f: () => this.toggleFold(),
      ArrowDown: () => this.step(1),
      ArrowRight: () => this.step(1),
      ArrowUp: () => this.step(-1),
      ArrowLeft: () => this.step(-1),
      Enter: () => event.target === this.svg && this.panel.focus(),
    }[event.key];
    if (!act || event.target.matches("button, a")) return;
    event.preventDefault();
    act();
  }

  /** Go to the next item in the order of the run, or to the one before. */
  step(by) {
    const at = this.items.findIndex((item) => item.id === this.chosen?.item?.id);
    const next = this.items[Math.min(Math.max(0, at + by), this.items.length - 1)];
    this.viewport.center(next);
    this.open({ item: next });
  }
}

async function start() {
  const layOut = layoutEngine();
  const values = JSON.parse(await unpacked("packed-model"));
  document.getElementById("model-name").textContent = values.model;
  document.getElementById("target-name").textContent = `for ${values.target}`;
  const page = new Page(indexedGraphs(values), layOut);
  await page.draw();
  page.viewport.begin();
  document.documentElement.dataset.ready = "true";
}

start().catch((error) => {
  document.getElementById("progress").textContent =
    `This page could not be drawn: ${error.message}`;
  throw error;
});
