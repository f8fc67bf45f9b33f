// Index expressions as Python writes them (page_data.py), and what they say about a layout.

/** The value of an index expression; `values` has the variables i0 …, p0 …. */
function indexValue(code, values) {
  if (typeof code === "number") return code;
  if (typeof code === "string") return values[code];
  const [operation, ...operands] = code;
  const numbers = operands.map((operand) => indexValue(operand, values));
  switch (operation) {
    case "+":
      return numbers.reduce((sum, number) => sum + number, 0);
    case "*":
      return numbers[0] * numbers[1];
    case "//":
      return Math.floor(numbers[0] / numbers[1]);
    case "%":
      return numbers[0] - numbers[1] * Math.floor(numbers[0] / numbers[1]);
    case "min":
      return Math.min(...numbers);
    case "max":
      return Math.max(...numbers);
    default:
      throw new Error(`unknown operation ${operation}`);
  }
}

function variables(letter, index) {
  return Object.fromEntries(index.map((value, axis) => [`${letter}${axis}`, value]));
}

/** Where a logical index lies in the physical box. */
function physicalIndex(layout, logical) {
  const values = variables("i", logical);
  return layout.physical.map((code) => indexValue(code, values));
}

/** What lies at a place of the box: its region, and the logical index (outside of the tensor for
 * padding). */
function placeInBox(layout, physical) {
  const values = variables("p", physical);
  const logical = layout.logical.map((code) => indexValue(code, values));
  const again = physicalIndex(layout, logical);
  if (again.some((value, axis) => value !== physical[axis]))
    return { region: "gap", logical: null };
  const outside = logical.flatMap((value, axis) =>
    value < 0 || value >= layout.logical_shape[axis] ? [axis] : [],
  );
  return { region: outside.length ? `pad(${outside.join(",")})` : "logical", logical };
}

/** The position of an index in a row-major box. */
function flatIndex(index, shape) {
  return index.reduce((flat, value, axis) => flat * shape[axis] + value, 0);
}

/** The variables that an index expression uses. */
function variablesOf(code) {
  if (typeof code === "string") return [code];
  return Array.isArray(code) ? code.slice(1).flatMap(variablesOf) : [];
}
