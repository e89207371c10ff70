"use strict";
// Fills the controls, draws the first picture at once and the others when the browser has shown it.
function fill(id, options, key) {
  const select = document.getElementById(id);
  select.append(...options.map(([value, text]) => html("option", { value }, text)));
  select.addEventListener("change", () => { state[key] = select.value; redraw(); });
}

function start() {
  fill("metric", report.metrics.map((line) => [line.name, line.title]), "metric");
  const predictors = [...new Set(report.methods.map((method) => method.predictor))].sort();
  fill("predictor", [["", "all"], ...predictors.map((name) => [name, name])], "predictor");
  const filter = document.getElementById("filter");
  filter.addEventListener("input", () => { state.filter = filter.value; redraw(); });
  document.getElementById("controls").addEventListener("submit", (event) => event.preventDefault());
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) { width = innerWidth; redraw(); }
  });
  addEventListener("scroll", hideTooltip, { passive: true });
  if (state.metric === null) document.getElementById("main").append(nothing("The runs hold no measurement of all clients."));
  else {
    leaderboard();
    curves();
    performance.mark("first-picture");
  }
  requestAnimationFrame(() => setTimeout(() => {
    if (state.metric !== null) for (const draw of [heatMap, change, fairness, calibration, tradeoff, communication]) draw();
    for (const draw of [ranks, targets, degradation, profile, teachers]) draw();
    partition();
    provenance();
    document.body.dataset.drawn = "all";
  }));
}
start();
