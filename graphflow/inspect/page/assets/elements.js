// Small helpers for the document.  Text is always set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element: attributes by name (`on…` are listeners), children are elements or texts. */
function element(tag, attributes = {}, ...children) {
  return withContents(document.createElement(tag), attributes, children);
}

/** An SVG element, made as `element` makes one. */
function svgElement(tag, attributes = {}, ...children) {
  return withContents(document.createElementNS(SVG, tag), attributes, children);
}

function withContents(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false)
      node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** A section of a panel; null if it would be empty. */
function section(title, ...children) {
  const contents = children.flat().filter(Boolean);
  return contents.length ? element("section", {}, element("h3", {}, title), ...contents) : null;
}

/** A table of texts and elements; columns named `#…` are numbers. */
function table(columns, rows) {
  const isNumber = columns.map((column) => column.startsWith("#"));
  const cell = (tag, value, place) =>
    element(tag, { class: isNumber[place] ? "number" : null }, value ?? "–");
  const head = columns.map((column, place) => cell("th", column.replace("#", ""), place));
  const body = rows.map((row) =>
    element(
      "tr",
      {},
      row.map((value, k) => cell("td", value, k)),
    ),
  );
  return element(
    "div",
    { class: "table" },
    element("table", {}, element("thead", {}, element("tr", {}, head)), element("tbody", {}, body)),
  );
}

/** A price in microseconds or milliseconds, with three digits. */
function timeText(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0) return `−${timeText(-seconds)}`;
  const micros = 1e6 * seconds;
  if (micros >= 1000) return `${(micros / 1000).toPrecision(3)} ms`;
  return `${micros >= 100 ? micros.toFixed(0) : micros.toPrecision(2)} µs`;
}

/** A share in percent. */
function percentText(share) {
  const percent = 100 * share;
  return `${percent >= 10 ? percent.toFixed(0) : percent.toFixed(1)} %`;
}

/** A number of bytes in binary units. */
function bytesText(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${(bytes / 1024).toFixed(1)} KiB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

/** Extents as text. */
function shapeText(shape) {
  return shape.length ? shape.join("×") : "scalar";
}

/** The beginning of a text, with an ellipsis where it is longer than `most` characters. */
function shortened(text, most) {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
