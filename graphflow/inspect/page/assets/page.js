// The page: its state, and what happens when something is asked of it.

class Page {
  constructor(graphs, layOut) {
    Object.assign(this, { graphs, layOut, chosen: null });
    this.filters = new Set();
    this.panel = document.getElementById("panel");
    this.views = Object.fromEntries(
      [...document.querySelectorAll(".graph-view")].map((root) => [
        root.dataset.view,
        new GraphView(this, graphs[root.dataset.view], root),
      ]),
    );
    this.active = this.views.program;
    document.getElementById("legend").append(...legendEntries(this.model));
    this.listen();
    this.openOverview();
  }

  // The graphs ---------------------------------------------------------------------------------

  /** The graph that was clicked or asked for last. */
  get model() {
    return this.active.model;
  }

  get shownViews() {
    return Object.values(this.views).filter((view) => view.isShown);
  }

  /** Have searches and keys go to a graph. */
  activate(view) {
    if (this.active === view) return;
    this.active = view;
    this.showFound();
  }

  /** Show one of the two graphs, or `both` beside each other. */
  async turnTo(name) {
    if (this.turned === name) return;
    const resized = [this.turned, name].includes("both");
    this.turned = name;
    for (const [key, view] of Object.entries(this.views))
      view.root.hidden = ![key, "both"].includes(name);
    document
      .querySelectorAll("#graphs button")
      .forEach((button) => button.setAttribute("aria-pressed", button.dataset.graph === name));
    if (!this.active.isShown) this.activate(this.shownViews[0]);
    this.search();
    for (const view of this.shownViews) {
      await view.show();
      const chosen = view === this.active && this.chosen?.item;
      if (resized && chosen) view.viewport.center(view.itemOf(chosen.places[0]));
      else if (resized) view.viewport.begin();
    }
    this.showChosen();
  }

  /** Show the next of: the program, the model, both. */
  async turn() {
    const names = ["program", "imported", "both"];
    await this.turnTo(names[(names.indexOf(this.turned) + 1) % names.length]);
  }

  async unfold(fold) {
    await this.active.unfold(fold);
  }

  // The panel ----------------------------------------------------------------------------------

  /** Show an item or a tensor in the panel. */
  open(chosen) {
    if (this.active.viewport.dragged) return;
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

  /** Show a node of either graph in the panel and in the middle of its picture. */
  async go(node) {
    const view = this.views[node.graph];
    if (!view.isShown) await this.turnTo(node.graph);
    await view.reveal(node.place);
    const item = view.itemOf(node.place);
    view.viewport.dragged = false;
    view.viewport.center(item);
    view.open({ item });
  }

  /** Show a tensor in the panel, and its edge in the picture if it is there. */
  goToTensor(name, edgeType) {
    this.active.viewport.dragged = false;
    this.open({ tensor: name, edgeType });
  }

  showChosen() {
    for (const view of Object.values(this.views)) view.showChosen();
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
    for (const view of Object.values(this.views)) view.search(text, this.filters);
  }

  /** Say how many nodes of the active graph match, and which of them is shown. */
  showFound() {
    const { matches, turn } = this.active ?? { matches: null };
    const place = turn >= 0 ? `${turn + 1} of ` : "";
    document.getElementById("found").textContent =
      matches === null ? "" : `${place}${matches.length}`;
  }

  /** Go to the next match, or to the one before. */
  async nextMatch(step) {
    const next = this.active.nextMatch(step);
    if (next === undefined) return;
    await this.go(next);
    this.showFound();
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
    const each = (act) => () => this.shownViews.forEach((view) => act(view));
    on("zoom-in", each((view) => view.viewport.zoom(1.3)));
    on("zoom-out", each((view) => view.viewport.zoom(1 / 1.3)));
    on("zoom-fit", each((view) => view.viewport.fit()));
    document.getElementById("graphs").hidden = !this.graphs.imported.nodes.length;
    for (const button of document.querySelectorAll("#graphs button")) {
      button.addEventListener("click", () => this.turnTo(button.dataset.graph));
    }
    const refold = (folds) =>
      each((view) => view.refold(folds(view.model)).then(() => view.viewport.begin()));
    on("fold-all", refold(allFolds));
    on("unfold-all", refold(() => new Set()));
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
    // A canvas keeps the colours with which it was drawn.
    for (const medium of ["print", "(prefers-color-scheme: dark)"]) {
      window.matchMedia(medium).addEventListener("change", redrawCanvases);
    }
    window.addEventListener("beforeprint", each((view) => view.viewport.prepareForPrint()));
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
      "+": () => this.active.viewport.zoom(1.3),
      "=": () => this.active.viewport.zoom(1.3),
      "-": () => this.active.viewport.zoom(1 / 1.3),
      0: () => this.active.viewport.fit(),
      f: () => this.chosen?.item && this.active.toggleFold(this.chosen.item),
      m: () => !document.getElementById("graphs").hidden && this.turn(),
      ArrowDown: () => this.active.step(1),
      ArrowRight: () => this.active.step(1),
      ArrowUp: () => this.active.step(-1),
      ArrowLeft: () => this.active.step(-1),
      Enter: () => event.target === this.active.svg && this.panel.focus(),
    }[event.key];
    if (!act || event.target.matches("button, a")) return;
    event.preventDefault();
    act();
  }
}

function redrawCanvases() {
  document.querySelectorAll("canvas").forEach((one) => one.dispatchEvent(new Event("redraw")));
}

async function start() {
  const layOut = layoutEngine();
  const values = JSON.parse(await unpacked("packed-model"));
  document.getElementById("model-name").textContent = values.model;
  document.getElementById("target-name").textContent = `for ${values.target}`;
  const page = new Page(indexedGraphs(values), layOut);
  await page.turnTo("program");
  document.documentElement.dataset.ready = "true";
}

start().catch((error) => {
  document.querySelector(".progress").textContent =
    `This page could not be drawn: ${error.message}`;
  throw error;
});
