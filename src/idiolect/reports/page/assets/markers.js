"use strict";
// Marks that are told apart without colour, and legends made of buttons that switch a method on and off.
const polygon = (sides, turn) =>
  Array.from({ length: sides }, (_, i) => {
    const angle = turn + (2 * Math.PI * i) / sides;
    return [Math.sin(angle), -Math.cos(angle)];
  });
const CROSS = [[-.35, -1], [.35, -1], [.35, -.35], [1, -.35], [1, .35], [.35, .35], [.35, 1], [-.35, 1], [-.35, .35], [-1, .35], [-1, -.35], [-.35, -.35]];
const turned = (points) => points.map(([x, y]) => [(x - y) * .75, (x + y) * .75]);
const SHAPES = {
  o: polygon(24, 0), s: [[-.85, -.85], [.85, -.85], [.85, .85], [-.85, .85]], "^": polygon(3, 0), v: polygon(3, Math.PI),
  "<": polygon(3, -Math.PI / 2), ">": polygon(3, Math.PI / 2), D: polygon(4, 0), d: polygon(4, 0).map(([x, y]) => [.6 * x, 1.1 * y]),
  p: polygon(5, 0), h: polygon(6, 0), P: CROSS, X: turned(CROSS),
};

// A mark in a look, which has a colour and a marker.
function sign(look, x, y, size = 5, attributes = {}) {
  const points = SHAPES[look.marker].map(([a, b]) => [x + size * a, y + size * b]);
  return svg("path", { class: "mark", d: `${pathOf(points)}Z`, fill: `var(--m${look.colour})`, stroke: "var(--card)", "stroke-width": 1, ...attributes });
}
const marker = (place, x, y, size, attributes) => sign(report.methods[place], x, y, size, attributes);

const dashes = (look) => look.dash.map((length) => 1.8 * length).join(" ") || null;
const dashOf = (place) => dashes(report.methods[place]);

// A method's line and mark, small, as legends and tables show it.
function swatch(look) {
  const line = { x1: 0, x2: 34, y1: 7, y2: 7, stroke: `var(--m${look.colour})`, "stroke-width": 2, "stroke-dasharray": dashes(look) };
  return svg("svg", { class: "swatch", viewBox: "0 0 34 14", "aria-hidden": "true" }, svg("line", line), sign(look, 17, 7));
}

// The mark of a method with its name beside it, also where the name takes several lines.
const named = (method) => html("div", { class: "named" }, swatch(method), html("span", {}, method.label));

// Of the methods that pass the filters, those that `has` holds of.
function legend(has = () => true) {
  const items = listed().filter(has).map((place) => {
    const toggle = (event) => {
      const home = event.currentTarget.closest("section").id;
      const name = report.methods[place].label;
      if (!state.off.delete(name)) state.off.add(name);
      redraw();
      document.querySelector(`#${home} .legend [data-place="${place}"]`).focus({ preventScroll: true });
    };
    const button = html("button", { type: "button", "data-place": place, "aria-pressed": String(!state.off.has(report.methods[place].label)), on: { click: toggle } }, swatch(report.methods[place]), html("span", {}, report.methods[place].label));
    return html("li", {}, button);
  });
  return html("ul", { class: "legend", "aria-label": "Methods; press to hide or show" }, ...items);
}
