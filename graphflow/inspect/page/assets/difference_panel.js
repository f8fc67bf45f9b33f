// What differs between two plans.

/** The differences of one tensor or number, before and after. */
function changesTable(changes) {
  if (!changes.length) return null;
  return table(
    ["what", "before", "after"],
    changes.map((change) => [change.kind, change.before, change.after]),
  );
}

/** The panel of all differences: what they cost, numbers of the whole plan, then tensor by tensor,
 * those that a run passes on before the constants. */
function differencePanel(page) {
  const { model } = page;
  const [numbers, others] = [true, false].map((wanted) =>
    model.changes.filter((change) => (change.kind === "summary") === wanted),
  );
  const isConstant = (name) => model.tensorByName.get(name)?.where === "constant";
  const changed = [...Map.groupBy(others, (change) => change.name)];
  const [constants, passed] = [true, false].map((wanted) =>
    changed.filter(([name]) => isConstant(name) === wanted),
  );
  return element(
    "div",
    { "data-panel": "difference" },
    element("p", { class: "kind" }, `From ${model.compared}`),
    element("h2", {}, `${model.model} for ${model.target}`),
    element("p", { class: "lead" }, differenceSentence(model, changed.length)),
    section("The whole plan", numbers.length ? numbersTable(numbers) : null),
    section("Where the time changes", priceChanges(page)),
    passed.map((entry) => changedTensor(page, entry)),
    constants.length
      ? section(
          "Constants",
          element(
            "details",
            {},
            element("summary", {}, `${constants.length} constants differ`),
            constants.map((entry) => changedTensor(page, entry)),
          ),
        )
      : null,
  );
}

/** How many tensors differ, and what a run costs more or less. */
function differenceSentence(model, count) {
  if (!model.changes.length) return "The two plans are equal.";
  const less = model.compared_seconds - model.seconds;
  const cost = less
    ? `${timeText(Math.abs(less))} ${less > 0 ? "less" : "more"} than the first`
    : "as the first";
  return (
    `${count} tensors differ. The graph is that of the second plan, estimated at ` +
    `${timeText(model.seconds)} a run, ${cost}.`
  );
}

/** The nodes that take longer or shorter in the second plan. */
function priceChanges(page) {
  const changes = page.model.price_changes;
  if (!changes.length) return null;
  const signed = (seconds) => `${seconds < 0 ? "" : "+ "}${timeText(seconds)}`;
  return table(
    ["node", "#before", "#after", "#change"],
    changes.map(({ node, before, after }) => [
      page.nodeLink(node),
      timeText(before),
      timeText(after),
      signed((after ?? 0) - (before ?? 0)),
    ]),
  );
}

function numbersTable(numbers) {
  const isTime = (name) => name.endsWith("seconds");
  const shown = (name, text) =>
    isTime(name) && text !== null && text !== "-" ? timeText(Number(text)) : text;
  return table(
    ["number", "#before", "#after"],
    numbers.map(({ name, before, after }) => [name, shown(name, before), shown(name, after)]),
  );
}

/** What changed of a tensor, and where it is: the node that writes it. */
function changedTensor(page, [name, changes]) {
  const tensor = page.model.tensorByName.get(name);
  return section(
    page.tensorLink(name),
    tensor?.producer
      ? element("p", { class: "proof" }, "Written by ", page.nodeLink(tensor.producer), ".")
      : null,
    changesTable(changes),
  );
}
