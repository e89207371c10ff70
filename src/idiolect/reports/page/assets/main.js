"use strict";
// Fills the controls, draws the first picture at once and the others when the browser has shown it.
function fill(id, options, chosen) {
  const select = document.getElementById(id);
  if (!select) return;
  select.replaceChildren(...options.map(([value, text]) => html("option", { value }, text)));
  select.value = chosen;
}

function fillControls() {
  fill("scene", everything.scenes.map((scene) => [scene.name, scene.name]), report.name);
  fill("metric", report.metrics.map((line) => [line.name, line.title]), state.metric);
  const predictors = [...new Set(report.methods.map((method) => method.predictor))].sort();
  fill("predictor", [["", "all"], ...predictors.map((name) => [name, name])], state.predictor);
}

const FIRST = [leaderboard, curves];
const MEASURED = [differences, heatMap, change, fairness, newcomers, calibration, reliability, confusion, tradeoff, communication, spending];
const RECORDED = [targets, degradation, profile, teachers, partition, provenance];
let acrossDrawers = 0;

// The sections of the scene that is shown, in place of those of another.
function buildScene() {
  hideTooltip();
  document.body.dataset.drawn = "first";
  drawers.length = acrossDrawers;
  const main = document.getElementById("main");
  main.replaceChildren();
  fillControls();
  document.getElementById("notes").replaceChildren(...report.notes.map((note) => html("p", {}, note)));
  if (state.metric === null) main.append(nothing("The runs hold no measurement of all clients."));
  else for (const draw of FIRST) draw();
  performance.mark("first-picture");
  requestAnimationFrame(() => setTimeout(() => {
    if (main.dataset.scene !== report.name || document.body.dataset.drawn === "all") return;
    for (const draw of state.metric === null ? RECORDED : [...MEASURED, ...RECORDED]) draw();
    contents();
    document.body.dataset.drawn = "all";
    follow();
  }));
}

function start() {
  const main = document.getElementById("main");
  const { scene } = linked();
  report = everything.scenes.find((found) => found.name === scene) ?? report;
  main.dataset.scene = report.name;
  state.metric = report.metrics.length ? report.metrics[0].name : null;
  for (const [id, key] of [["metric", "metric"], ["predictor", "predictor"]]) {
    const select = document.getElementById(id);
    select.addEventListener("change", () => { state[key] = select.value; redraw(); });
  }
  document.getElementById("scene")?.addEventListener("change", (event) => { location.hash = linkTo("", event.target.value); });
  const filter = document.getElementById("filter");
  filter.addEventListener("input", () => { state.filter = filter.value; redraw(); });
  document.getElementById("controls").addEventListener("submit", (event) => event.preventDefault());
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) { width = innerWidth; redraw(); }
  });
  for (const [event, prints] of [["beforeprint", true], ["afterprint", false]]) addEventListener(event, () => {
    document.body.classList.toggle("printing", prints);
    redraw();
  });
  addEventListener("scroll", hideTooltip, { passive: true });
  addEventListener("hashchange", follow);
  matrix();
  disturbances();
  ranks();
  acrossDrawers = drawers.length;
  buildScene();
}
start();
