"use strict";
// Calibration of all samples together: how often a prediction is right against how sure it is. On the diagonal both agree.
function reliability() {
  const found = report.reliability;
  if (!found) return;
  const has = (place) => Boolean(found[place]);
  const body = section("reliability", "Calibration of all samples", "Left: share of right predictions against mean confidence, samples of all clients and seeds in bins of confidence; a line below the diagonal is too sure of itself. Right: the ECE of all samples together (mark), what a calibrated model would show by chance (tick), and the root of the debiased squared error (ring), which weighs large errors more and may exceed the ECE.");
  drawn(body, (width) => {
    const places = shown().filter(has);
    if (!places.length) return [nothing("None of the methods shown has counted it."), legend(has)];
    const two = width > 620, each = two ? (width - 16) / 2 : width;
    const box = html("div", { class: "panels", style: `grid-template-columns:repeat(${two ? 2 : 1},minmax(0,1fr))` }, reliabilityDiagram(places, each), calibrationRows(places, each));
    const few = [...new Set(places.map((place) => found[place].few).filter(Boolean))];
    const notes = places.filter((place) => found[place].few).slice(0, 3).map((place) => html("p", { class: "about" }, `${report.methods[place].label}: ${found[place].few}.`));
    const keys = ["samples", "ece", "if_calibrated", "error", "client_ece", "client_if_calibrated"];
    return [box, legend(has), ...(few.length ? notes : []), beside("reliability", () => [["method", ...keys], ...places.map((place) => [report.methods[place].label, ...keys.map((key) => found[place][key])])])];
  });
}

function reliabilityDiagram(places, width) {
  const percent = (value) => String(Math.round(100 * value));
  const { root, sx, sy } = frame(width, 320, { x: [0, 1], y: [0, 1], xLabel: "Confidence (%)", yLabel: "Right (%)", xText: percent, yText: percent });
  root.append(svg("line", { class: "zero", x1: sx(0), y1: sy(0), x2: sx(1), y2: sy(1), "stroke-dasharray": "4 4" }));
  const marks = places.flatMap((place) => {
    const { bins } = report.reliability[place];
    if (places.length === 1) bins.confidence.forEach((x, i) => root.append(svg("line", { x1: sx(x), x2: sx(x), y1: sy(bins.accuracy_low[i]), y2: sy(bins.accuracy_high[i]), stroke: colourOf(place), opacity: .5 })));
    const curve = { round: bins.confidence, value: bins.accuracy, sd: [] };
    return drawLine(root, place, curve, curve.round, sx, sy).map(({ x, y, i }) => ({ x, y, lines: [report.methods[place].label, `confidence ${(100 * bins.confidence[i]).toFixed(1)} %, right ${(100 * bins.accuracy[i]).toFixed(1)} %`, `${bins.count[i]} samples`] }));
  });
  inspect(root, marks, "Reliability diagram");
  return html("div", {}, html("h3", {}, "Reliability diagram"), root);
}

function calibrationRows(places, width) {
  const line = { percent: true, title: "Calibration error" }, found = report.reliability;
  const top = extent(places.flatMap((place) => [found[place].ece, found[place].error]))[1];
  const { root, sx, level } = rowsFrame(width, places, [0, top], axisTitle(line), line);
  const marks = places.map((place, row) => {
    const one = found[place], y = level(row);
    root.append(svg("line", { x1: sx(one.if_calibrated), x2: sx(one.if_calibrated), y1: y - 7, y2: y + 7, stroke: "var(--quiet)", "stroke-width": 2 }));
    if (isNumber(one.error)) root.append(svg("circle", { cx: sx(one.error), cy: y, r: 5.5, fill: "none", stroke: colourOf(place), "stroke-width": 2 }));
    root.append(marker(place, sx(one.ece), y, 5));
    return { x: sx(one.ece), y, lines: [report.methods[place].label, `ECE ${format(one.ece, line)}, by chance alone ${format(one.if_calibrated, line)}`, `debiased ${format(one.error, line)}`, `${one.samples} samples`] };
  });
  inspect(root, withEnds(marks, root), "Calibration of all samples");
  return html("div", {}, html("h3", {}, "Error of all samples together"), root);
}
