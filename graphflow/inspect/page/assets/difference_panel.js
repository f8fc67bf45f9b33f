// What differs between two plans.

/** The differences of one tensor or number, before and after. */
function changesTable(changes) {
  if (!changes.length) return null;
  return table(
    ["what", "before", "after"],
    changes.map((change) => [change.kind, change.before, change.after]),
  );
}

/** The panel of all differences: numbers of the whole plan, then tensor by tensor. */
function differencePanel(page) {
  const { model } = page;
  const [numbers, others] = [true, false].map((wanted) =>
    model.changes.filter((change) => (change.kind === "summary") === wanted),
  );
  const tensors = [...Map.groupBy(others, (change) => change.name)];
  return element(
    "div",
    { "data-panel": "difference" },
    element("p", { class: "kind" }, `From ${model.compared}`),
    element("h2", {}, `${model.model} for ${model.target}`),
    element(
      "p",
      { class: "lead" },
      model.changes.length
        ? `${tensors.length} tensors differ. The graph is that of the second plan, ` +
            `estimated at ${timeText(model.seconds)} a run.`
        : "The two plans are equal.",
    ),
    section(
      "The whole plan",
      numbers.length
        ? table(
            ["number", "#before", "#after"],
            numbers.map((change) => [change.name, change.before, change.after]),
          )
        : null,
    ),
    tensors.map(([name, changes]) => section(page.tensorLink(name), changesTable(changes))),
  );
}
