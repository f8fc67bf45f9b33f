// The texts of a kernel: one of them is shown, or what a step of its schedule changed.

const TEXTS = {
  lowered: ["Lowered", "The kernel from which code is made"],
  definition: ["Definition", "What the kernel computes, before any step"],
  steps: ["Step by step", "What each step of the schedule changed"],
  schedule: ["Schedule and proofs", "The steps, each with the proof that permitted it"],
  ir: ["LLVM IR", "The kernel as LLVM gets it"],
  assembly: ["Assembly", "The code that the processor executes"],
};

/** The buttons of the texts, and the text that was asked for last. */
function kernelTexts(kernel) {
  if (!kernel) return null;
  const shown = element("div");
  const there = Object.entries(TEXTS).filter(([key]) => kernel[key] !== null);
  const buttons = there.map(([key, [title, explained]]) =>
    element(
      "button",
      { type: "button", onclick: () => show(key), "data-text": key, title: explained },
      title,
    ),
  );
  function show(key) {
    shown.replaceChildren(key === "steps" ? stepTexts(kernel) : plainText(kernel[key]));
    buttons.forEach((button) => button.setAttribute("aria-pressed", button.dataset.text === key));
  }
  show("lowered");
  const missing = Object.keys(TEXTS).length - there.length;
  return [element("div", { class: "tabs" }, buttons), shown, missing ? whereOthersAre() : null];
}

function plainText(text) {
  return element("pre", { tabindex: 0 }, text.trim());
}

function whereOthersAre() {
  return element(
    "p",
    { class: "proof" },
    "This page has the steps and the code of the kernels that take most of a run. ",
    element("code", {}, "graphflow compile MODEL --dump DIR"),
    " writes those of all kernels.",
  );
}

/** The kernel after one of its steps, with the lines that this step removed and added. */
function stepTexts(kernel) {
  if (!kernel.steps.length)
    return element("p", {}, "The kernel is its definition: no step was made.");
  const states = kernelStates(kernel);
  const chooser = element(
    "select",
    { "aria-label": "Step", onchange: () => show(chooser.selectedIndex) },
    kernel.steps.map(({ step }, k) => element("option", {}, `${k + 1}. ${step}`)),
  );
  const turn = (text, label, by) =>
    element("button", { type: "button", "aria-label": label, onclick: () => move(by) }, text);
  const [before, after] = [turn("‹", "Step before", -1), turn("›", "Next step", 1)];
  const proofs = element("div");
  const text = element("pre", { tabindex: 0 });
  function move(by) {
    show(chooser.selectedIndex + by);
  }
  function show(number) {
    chooser.selectedIndex = number;
    before.disabled = number === 0;
    after.disabled = number === kernel.steps.length - 1;
    const { step, edits, proofs: given } = kernel.steps[number];
    proofs.replaceChildren(stepSummary(step, edits), ...given.map(proofLine));
    text.replaceChildren(...markedLines(states[number], edits));
    const first = text.querySelector(".added, .removed");
    requestAnimationFrame(() => {
      text.scrollTop = first ? first.offsetTop - text.offsetTop - 40 : 0;
    });
  }
  const tools = element("div", { class: "tabs steps" }, before, chooser, after);
  show(0);
  return element("div", { "data-role": "steps" }, tools, proofs, text);
}

function proofLine(proof) {
  return element("p", { class: "proof" }, `Proof: ${proof}`);
}

/** How much a step changed, in words. */
function stepSummary(step, edits) {
  const removed = edits.reduce((sum, edit) => sum + edit.removed, 0);
  const added = edits.reduce((sum, edit) => sum + edit.added.length, 0);
  const changed =
    removed + added ? `removes ${removed} lines (−), adds ${added} (+)` : "changes no line";
  const what = step === "lowering" ? "What makes the schedule's result ready for code" : "The step";
  return element("p", {}, `${what} ${changed}.`);
}

/** The lines of the kernel before each step. */
function kernelStates(kernel) {
  const states = [kernel.definition.replace(/\n$/, "").split("\n")];
  for (const { edits } of kernel.steps) states.push(edited(states.at(-1), edits));
  return states;
}

function edited(lines, edits) {
  const after = [];
  let next = 0;
  for (const { first, removed, added } of edits) {
    after.push(...lines.slice(next, first), ...added);
    next = first + removed;
  }
  return [...after, ...lines.slice(next)];
}

/** The lines before and after edits as elements: kept, removed (−) and added (+) ones. */
function markedLines(lines, edits) {
  const marked = [];
  const add = (kind, sign, some) =>
    marked.push(...some.map((line) => element("span", { class: `line ${kind}` }, sign + line)));
  let next = 0;
  for (const { first, removed, added } of edits) {
    add("kept", "  ", lines.slice(next, first));
    add("removed", "− ", lines.slice(first, first + removed));
    add("added", "+ ", added);
    next = first + removed;
  }
  add("kept", "  ", lines.slice(next));
  return marked;
}
