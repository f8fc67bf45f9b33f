// The arena: the memory of the tensors between the steps, which later tensors use again.

/** Whether the page knows the memory of a run. */
function hasMemory(model) {
  return model.memory !== null && model.memory.parts.length > 0;
}

/** The panel of the memory of a run. */
function memoryPanel(page) {
  const { memory } = page.graphs.program;
  const most = Math.max(...memory.live);
  const step = memory.live.indexOf(most);
  const sum = memory.parts.reduce((all, part) => all + part.bytes, 0);
  return element(
    "div",
    { "data-panel": "memory" },
    element("p", { class: "kind" }, "Memory of a run"),
    element("h2", {}, `${bytesText(memory.bytes)} for what kernels pass on`),
    element(
      "p",
      { class: "lead" },
      `Tensors between kernels lie in one block of memory, the arena. Alone, the ` +
        `${memory.parts.length} of them would take ${bytesText(sum)}; but a tensor that no later step reads gives its memory to others.`,
    ),
    element(
      "p",
      {},
      `Step ${step + 1} of ${memory.steps.length}, `,
      page.nodeLink(memory.steps[step]),
      `, has the most in use: ${bytesText(most)}.`,
    ),
    section("What lies where, step by step", memoryPicture(page, null)),
    section("The largest", partsTable(page, memory)),
  );
}

const MOST_PARTS = 20;
const WORKSPACE = "workspace:"; // begins the names of memory that a kernel has for itself

function partsTable(page, memory) {
  const largest = [...memory.parts].sort((a, b) => b.bytes - a.bytes).slice(0, MOST_PARTS);
  return table(
    ["tensor", "#size", "#from byte", "#steps"],
    largest.map((part) => [
      partName(page, part),
      bytesText(part.bytes),
      String(part.offset),
      stepsText(part),
    ]),
  );
}

function stepsText(part) {
  return part.first === part.last
    ? String(part.first + 1)
    : `${part.first + 1}–${part.last + 1}`;
}

/** The tensors of a part as links; results inside of a kernel have no name in the model. */
function partName(page, part) {
  const step = page.graphs.program.memory.steps[part.first];
  if (!part.tensors.length)
    return part.storage.startsWith(WORKSPACE)
      ? element("span", {}, "work space of ", page.nodeLink(step))
      : element("span", {}, `a copy, ${part.storage}`);
  const [first, ...others] = part.tensors;
  return element(
    "span",
    {},
    page.tensorLink(first),
    others.length ? ` and ${others.length} more inside of it` : "",
  );
}

/** The memory of one tensor: where, when, and whose it was before and is afterwards. */
function memoryOf(page, tensor) {
  const { memory } = page.graphs.program;
  if (memory === null) return null;
  const place = memory.parts.findIndex((part) => part.tensors.includes(tensor.name));
  if (place < 0) return null;
  const part = memory.parts[place];
  const after = memory.parts.filter((other) => other.reuses.includes(place));
  const before = part.reuses.map((other) => memory.parts[other]);
  const listed = (parts) => parts.flatMap((one, k) => [k ? ", " : "", partName(page, one)]);
  return [
    element(
      "p",
      {},
      `${bytesText(part.bytes)} of the arena, from byte ${part.offset} on, during ` +
        `${part.first === part.last ? "step" : "steps"} ${stepsText(part)} of ` +
        `${memory.steps.length}.`,
    ),
    before.length ? element("p", {}, "Before, this memory held ", listed(before), ".") : null,
    after.length ? element("p", {}, "Afterwards it holds ", listed(after), ".") : null,
    memoryPicture(page, place),
  ];
}

/** Steps from left to right, bytes of the arena from top to bottom, a box for each part. */
function memoryPicture(page, chosen) {
  const model = page.graphs.program;
  const { memory } = model;
  const [width, height] = [1000, chosen === null ? 480 : 160];
  const [column, scale] = [width / memory.steps.length, height / Math.max(1, memory.bytes)];
  const boxes = memory.parts.map((part, place) => {
    const tensor = model.tensorByName.get(part.tensors[0]);
    const color = tensor ? familyClass(model, tensor.edge_type) : "layout-none";
    const name = part.tensors.join(", ") || part.storage;
    return svgElement(
      "rect",
      {
        class: `part ${color}${place === chosen ? " chosen" : ""}`,
        "data-storage": part.storage,
        x: part.first * column,
        y: part.offset * scale,
        width: (part.last - part.first + 1) * column,
        height: Math.max(1, part.bytes * scale),
        onclick: () => tensor && page.goToTensor(tensor.name, null),
      },
      svgElement("title", {}, `${name}: ${bytesText(part.bytes)}, steps ${stepsText(part)}`),
    );
  });
  return [
    svgElement(
      "svg",
      {
        class: "memory",
        viewBox: `0 0 ${width} ${height}`,
        preserveAspectRatio: "none",
        height: chosen === null ? 360 : 110,
        role: "img",
        "aria-label": "The arena: steps from left to right, bytes from top to bottom",
      },
      boxes,
    ),
    element(
      "p",
      { class: "proof" },
      `Steps of the run from left to right, bytes of the arena from top (0) to bottom ` +
        `(${bytesText(memory.bytes)}), in the colour of the layout. ` +
        (chosen === null ? "Click a box for its tensor." : "This tensor has a frame."),
    ),
  ];
}
