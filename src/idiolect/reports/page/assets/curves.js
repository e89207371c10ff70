"use strict";
// Learning curves with bands of one SD over seeds; ringed marks stand for the end of the run.
const PANELS = [["global", "Global model on the server's test set"], ["personal", "Personalised, mean over all clients"]];

const STRONG = 12; // methods come best first; lines of those that follow are faint

function bandOf(curve, sx, sy) {
  const upper = curve.round.map((round, i) => [sx(round), sy(curve.value[i] + curve.sd[i])]);
  const lower = curve.round.map((round, i) => [sx(round), sy(curve.value[i] - curve.sd[i])]).reverse();
  return `${pathOf([...upper, ...lower])}Z`;
}

function curveLines(place, round, value, sd, extra = []) {
  const deviation = isNumber(sd) ? [`SD over seeds ${format(sd)}`] : [];
  return [report.methods[place].label, `round ${round}: ${format(value)}`, ...deviation, ...extra];
}

// Draws a line, its band and a few markers; gives what can be inspected. `at` is where each point stands on x.
function drawLine(root, place, curve, at, sx, sy) {
  if (!curve.round.length) return [];
  if (curve.sd.some(isNumber) && at === curve.round) root.append(svg("path", { d: bandOf(curve, sx, sy), fill: colourOf(place), opacity: Math.min(.16, .6 / shown().length) }));
  const points = at.map((x, i) => [sx(x), sy(curve.value[i])]), strong = shown().indexOf(place) < STRONG;
  root.append(svg("path", { d: pathOf(points), fill: "none", stroke: colourOf(place), "stroke-width": strong ? 2 : 1, opacity: strong ? 1 : .3, "stroke-dasharray": dashOf(place), class: "line" }));
  const every = Math.max(1, Math.round(points.length / 6));
  points.forEach(([x, y], i) => {
    if (strong && i % every === place % every || points.length === 1) root.append(marker(place, x, y, 4.5));
  });
  return points.map(([x, y], i) => ({ x, y, i }));
}

function curvePanel(panel, title, width, range, last) {
  const { root, sx, sy, box } = frame(width, 300, { x: [0, last * 1.06 || 1], y: range, xLabel: "Round", yLabel: axisTitle(), xText: String, yText: tickText(), whole: true });
  const marks = [];
  let measuredHere = false;
  for (const place of shown()) {
    const curve = measured().curves[place][panel];
    const points = drawLine(root, place, curve, curve.round, sx, sy);
    marks.push(...points.map(({ x, y, i }) => ({ x, y, lines: curveLines(place, curve.round[i], curve.value[i], curve.sd[i]) })));
    const end = measured().curves[place].end;
    if (panel === "personal") end.round.forEach((round, i) => {
      const x = sx(last * 1.04), y = sy(end.value[i]);
      root.append(marker(place, x, y, 6, { stroke: "var(--ink)", "stroke-width": 1.5 }));
      marks.push({ x, y, lines: curveLines(place, round, end.value[i], end.sd[i], ["at the end of the run"]) });
    });
    measuredHere ||= marks.length > 0;
  }
  if (!measuredHere) root.append(svg("text", { x: (box.left + box.right) / 2, y: 140, "text-anchor": "middle" }, "not measured"));
  inspect(root, marks, `Learning curves: ${title}`);
  return html("div", {}, html("h3", {}, title), root);
}

function curvesRows() {
  const rows = [["method", "panel", "round", state.metric, "sd_seeds"]];
  for (const place of shown()) {
    for (const [panel, curve] of Object.entries(measured().curves[place])) {
      curve.round.forEach((round, i) => rows.push([report.methods[place].label, panel, round, curve.value[i], curve.sd[i]]));
    }
  }
  return rows;
}

function curves() {
  const body = section("curves", "Learning curves", "Mean over seeds; a band is one SD over seeds. A ringed mark is a measurement at the end of the run." + (report.methods.length > STRONG ? ` Of the methods shown, the best ${STRONG} are strong and the others faint; filter, or press names below, to see others.` : ""));
  drawn(body, (width) => {
    const all = shown().flatMap((place) => Object.values(measured().curves[place]));
    const values = all.flatMap((curve) => curve.value.flatMap((value, i) => [value - (curve.sd[i] || 0), value + (curve.sd[i] || 0)]));
    const last = Math.max(1, ...all.map((curve) => curve.round.at(-1) ?? 0));
    const each = width > 620 ? (width - 16) / 2 : width;
    const panels = PANELS.map(([panel, title]) => curvePanel(panel, title, each, extent(values), last));
    const box = html("div", { class: "panels" }, ...panels);
    if (width <= 620) box.style.gridTemplateColumns = "minmax(0, 1fr)";
    return [box, legend(), beside(`curves-${state.metric}`, curvesRows)];
  });
}
