"use strict";
// Elements. Text only ever goes in as text, so no name can become markup.
const SVG = "http://www.w3.org/2000/svg";

function dress(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  for (const child of children) if (child !== null && child !== undefined) element.append(child);
  return element;
}
const html = (name, attributes, ...children) => dress(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) => dress(document.createElementNS(SVG, name), attributes, children);

const colourOf = (place) => `var(--m${report.methods[place].colour})`;

// A path through points.
function pathOf(points) {
  return points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`).join("");
}

// Text that fits into a width in pixels, with dots where something was left out.
const ruler = document.createElement("canvas").getContext("2d");
ruler.font = `12px ${getComputedStyle(document.body).fontFamily}`;

function fitted(text, pixels) {
  let most = text.length;
  const cut = () => (most < text.length ? `${text.slice(0, most)}…` : text);
  while (most > 1 && ruler.measureText(cut()).width > pixels) most -= 1;
  return cut();
}
