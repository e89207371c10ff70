"use strict";
// What is shown now. Every control changes `state` and calls `redraw`; another scene builds its sections anew.
const everything = JSON.parse(document.getElementById("data").textContent);
let report = everything.scenes[0];
const state = { metric: null, filter: "", predictor: "", off: new Set() };
const drawers = [];

const metric = () => report.metrics.find((line) => line.name === state.metric);
const measured = (name = state.metric) => report.measured[name];

// Methods that pass the filters, as places in the scene's list.
function listed() {
  const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
  return report.methods.map((_, place) => place).filter((place) => {
    const m = report.methods[place];
    const text = [m.label, m.method, m.predictor, m.dataset, m.partition, m.model].join(" ").toLowerCase();
    return words.every((word) => text.includes(word)) && (!state.predictor || m.predictor === state.predictor);
  });
}

// Of those, the ones that are not switched off in a legend; a method that is off stays off in every scene.
const shown = () => listed().filter((place) => !state.off.has(report.methods[place].label));

function redraw() {
  hideTooltip();
  for (const draw of drawers) draw();
}

const isNumber = (value) => typeof value === "number";

function format(value, line = metric(), digits = 2) {
  if (!isNumber(value)) return "–";
  return line.percent ? `${(100 * value).toFixed(digits)} %` : value.toFixed(digits + 2);
}

// A difference of shares is in points, not in percent.
const points = (value) => format(value).replace(" %", " points");

function humanBytes(count) {
  if (!isNumber(count)) return "–";
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (count < 999.5) return `${unit === "B" ? count.toFixed(0) : count.toFixed(1)} ${unit}`;
    count /= 1000;
  }
  return `${count.toFixed(1)} TB`;
}
