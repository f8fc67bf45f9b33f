// What was measured: the panel of a run, and the part of a node's panel about its steps.

/** What was measured of the steps of a node. */
function measuredOf(page, node) {
  if (!node.steps) return null;
  const { profile, step_seconds: total } = page.graphs.program.run;
  const sum = (of) => node.steps.reduce((all, step) => all + of(step), 0);
  const [flops, bytes] = [sum((step) => step.flops), sum((step) => step.bytes)];
  const rates = [
    flops
      ? `${rateText(flops, node.measuredSeconds)} GFLOP/s of ${profile.gflops.toFixed(0)}`
      : null,
    bytes ? `${rateText(bytes, node.measuredSeconds)} GB/s of ${profile.gbps.toFixed(0)}` : null,
  ].filter(Boolean);
  return [
    element(
      "p",
      {},
      element("strong", {}, timeText(node.measuredSeconds)),
      `, ${percentText(node.measuredSeconds / total)} of all steps`,
      node.seconds ? `; ${ratioText(node.measuredSeconds / node.seconds)} its price` : "",
    ),
    rates.length ? element("p", {}, `${rates.join(", ")} at best.`) : null,
    profile.threads > 1
      ? element(
          "p",
          {},
          `Threads wait ${timeText(sum((step) => step.waiting))} in all for the last one.`,
        )
      : null,
    table(
      ["thread", "#begins at", "#takes"],
      node.steps.flatMap((step) =>
        step.spans.flatMap((span, thread) =>
          span
            ? [[threadName(thread), startText(span[0]), timeText(span[1] - span[0])]]
            : [],
        ),
      ),
    ),
  ];
}

function threadName(thread) {
  return thread === 0 ? "caller" : `thread ${thread}`;
}

/** A time since the run began; the first step begins at its beginning. */
function startText(seconds) {
  return seconds > 0 ? timeText(seconds) : "0";
}

function rateText(count, seconds) {
  return (count / Math.max(seconds, 1e-9) / 1e9).toPrecision(3);
}

function ratioText(ratio) {
  return `${ratio.toFixed(2)} ×`;
}

/** The panel of the measured run. */
function runPanel(page) {
  const { run } = page.graphs.program;
  const { profile } = run;
  const list = element("div", { "data-role": "steps-of-run" });
  const orders = { time: "Slowest first", order: "In order", estimate: "Worst estimate first" };
  const buttons = Object.entries(orders).map(([key, title]) =>
    element("button", { type: "button", "data-order": key, onclick: () => show(key) }, title),
  );
  function show(order) {
    list.replaceChildren(stepBars(page, orderedSteps(run, order)));
    buttons.forEach((button) => button.setAttribute("aria-pressed", button.dataset.order === order));
  }
  show("time");
  return element(
    "div",
    { "data-panel": "run" },
    element("p", { class: "kind" }, `Run, measured with ${profile.threads} threads`),
    element("h2", {}, `${timeText(profile.seconds)} a run`),
    element(
      "p",
      { class: "lead" },
      `The plan estimated ${timeText(profile.estimate)}. The ${profile.steps.length} steps take ` +
        `${timeText(run.step_seconds)}, ${percentText(run.step_seconds / profile.seconds)} of a run.`,
    ),
    element(
      "p",
      { class: "proof" },
      `Means of the fastest ${profile.runs} runs, as other load only slows a run down. A step takes from the begin of its first thread to the ` +
        `end of its last one. This machine reaches ${profile.gflops.toFixed(0)} GFLOP/s, and ` +
        `${profile.gbps.toFixed(0)} GB/s from the caches.`,
    ),
    section("Where a run goes", partsOfRun(profile, run.step_seconds)),
    section("Threads in one run", timeline(page)),
    section(
      "Steps: measured, and a line at the estimate",
      element("div", { class: "tabs" }, buttons),
      list,
    ),
    ...operatorSections(run),
  );
}

/** The steps of a run, and what passes around and between them. */
function partsOfRun(profile, steps) {
  const parts = [
    [`${profile.steps.length} steps`, steps],
    ["before them: the call, waking threads", profile.before],
    ["between them: barriers", profile.between],
    ["after them: the return, checks", profile.after],
  ];
  return [
    table(
      ["part", "#time", "#share"],
      parts.map(([name, seconds]) => [
        name,
        timeText(seconds),
        percentText(seconds / profile.seconds),
      ]),
    ),
    element("p", { class: "proof" }, "Inputs are in place: no copy of an input is measured."),
  ];
}

/** The times by operator beside those that another program's own profile gives, as bars of one
 * scale. */
function operatorSections({ operators, profile: { peer } }) {
  const most = Math.max(1e-12, ...[...operators, ...(peer?.operators ?? [])].map((t) => t.seconds));
  return [
    section("By operator", operatorTable(operators, most)),
    peer ? section(`${peer.name}'s own profile`, operatorTable(peer.operators, most)) : null,
  ];
}

function operatorTable(times, most) {
  const total = times.reduce((sum, time) => sum + time.seconds, 0);
  const rows = times.map((time) => [
    element("div", {}, time.operator, shareBar(time.seconds / most)),
    timeText(time.seconds),
    percentText(total ? time.seconds / total : 0),
    String(time.count),
  ]);
  const count = times.reduce((sum, time) => sum + time.count, 0);
  return table(
    ["operator", "#time", "#share", "#nodes"],
    [...rows, [element("strong", {}, "all"), timeText(total), "100 %", String(count)]],
  );
}

/** The steps with the places of their nodes, in one of three orders. */
function orderedSteps(run, order) {
  const steps = run.profile.steps.map((step, number) => ({ step, place: run.nodes[number] }));
  const excess = ({ step }) => step.seconds - (step.estimate ?? step.seconds);
  if (order === "time") steps.sort((a, b) => b.step.seconds - a.step.seconds);
  if (order === "estimate") steps.sort((a, b) => excess(b) - excess(a));
  return steps;
}

/** A bar for each step, as long as its time, and a line where the estimate ends. */
function stepBars(page, steps) {
  const most = Math.max(
    1e-12,
    ...steps.map(({ step }) => Math.max(step.seconds, step.estimate ?? 0)),
  );
  return element(
    "ol",
    { class: "step-bars" },
    steps.map(({ step, place }) => {
      const bar = element("div", { class: "measured" });
      bar.style.width = `${(100 * step.seconds) / most}%`;
      const mark = step.estimate === null ? null : element("div", { class: "estimate" });
      if (mark) mark.style.left = `${(100 * step.estimate) / most}%`;
      const node = place === null ? null : page.graphs.program.nodes[place];
      return element(
        "li",
        { "data-step": step.name },
        node ? page.linkTo(node, nodeTitle(node)) : step.name,
        element(
          "span",
          { class: "proof" },
          ` ${node ? `${step.name}: ` : ""}${timeText(step.seconds)}` +
            (step.estimate === null ? "" : `, estimated ${timeText(step.estimate)}`),
        ),
        element("div", { class: "step-bar" }, bar, mark),
      );
    }),
  );
}

/** A row for each thread, with a bar for its part of each step. */
function timeline(page) {
  const { profile, nodes } = page.graphs.program.run;
  const end = Math.max(
    ...profile.steps.flatMap((step) => step.spans.map((span) => span?.[1] ?? 0)),
    1e-12,
  );
  const [width, height] = [1000, 22];
  const bars = profile.steps.flatMap((step, number) =>
    step.spans.flatMap((span, thread) =>
      span
        ? [
            svgElement(
              "rect",
              {
                class: `part${number % 2 ? " odd" : ""}`,
                x: (width * span[0]) / end,
                y: thread * height + 2,
                width: Math.max(0.5, (width * (span[1] - span[0])) / end),
                height: height - 4,
                onclick: () => nodes[number] !== null && page.go(page.graphs.program.nodes[nodes[number]]),
              },
              svgElement(
                "title",
                {},
                `${step.name}, ${threadName(thread)}: ${timeText(span[1] - span[0])}`,
              ),
            ),
          ]
        : [],
    ),
  );
  return [
    svgElement(
      "svg",
      {
        class: "timeline",
        viewBox: `0 0 ${width} ${profile.threads * height}`,
        preserveAspectRatio: "none",
        height: profile.threads * height,
        role: "img",
        "aria-label": "When each thread works on which step",
      },
      bars,
    ),
    element(
      "p",
      { class: "proof" },
      `From left to right ${timeText(end)}, a row for each thread; gaps are waiting. ` +
        "Click a bar for its kernel.",
    ),
  ];
}
