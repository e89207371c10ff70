"use strict";
// Pictures with one row per method: how a value spreads over clients, and how well probabilities are calibrated.
function rowsFrame(width, places, range, xLabel, line) {
  const left = Math.min(190, width * .36);
  const made = frame(width, 28 * places.length + 56, { x: range, y: [0, 1], xLabel, xText: tickText(line), left });
  places.forEach((place, row) => {
    made.root.append(svg("text", { class: "name", x: left - 8, y: 28 * row + 28, "text-anchor": "end" }, fitted(report.methods[place].label, left - 10)));
  });
  return { ...made, level: (row) => 28 * row + 24 };
}

function segment(root, from, to, y, colour, thick, opacity = 1) {
  root.append(svg("line", { x1: from, x2: to, y1: y, y2: y, stroke: colour, "stroke-width": thick, opacity }));
}

function fairness() {
  const body = section("fairness", "Fairness: spread over clients", "Thin line: least to greatest client; thick: first to ninth decile; bar: mean; hollow triangle: mean of the worst tenth. Within a seed, then averaged over seeds.");
  drawn(body, (width) => {
    const lines = measured().spread, places = shown().filter((place) => isNumber(lines[place].mean));
    if (!places.length) return [nothing("No client was measured.")];
    const range = extent(places.flatMap((place) => [lines[place].min, lines[place].max]), .03);
    const { root, sx, level } = rowsFrame(width, places, range, axisTitle());
    const marks = places.map((place, row) => {
      const line = lines[place], y = level(row), colour = colourOf(place);
      segment(root, sx(line.min), sx(line.max), y, colour, 2);
      segment(root, sx(line.decile_1), sx(line.decile_9), y, colour, 10, .55);
      root.append(svg("line", { x1: sx(line.mean), x2: sx(line.mean), y1: y - 9, y2: y + 9, stroke: "var(--ink)", "stroke-width": 2.5 }));
      const worst = SHAPES.v.map(([a, b]) => [sx(line.worst_tenth) + 5 * a, y + 5 * b]);
      root.append(svg("path", { d: `${pathOf(worst)}Z`, fill: "var(--card)", stroke: "var(--ink)", "stroke-width": 1.5 }));
      return { x: sx(line.mean), y, lines: [report.methods[place].label, `mean ${format(line.mean)}, SD over clients ${format(line.sd_ddof1)} (n - 1), ${format(line.sd_ddof0)} (n)`, `least ${format(line.min)}, greatest ${format(line.max)}`, `deciles ${format(line.decile_1)} to ${format(line.decile_9)}, worst tenth ${format(line.worst_tenth)}`] };
    });
    inspect(root, withEnds(marks, root), "Spread over clients");
    const keys = Object.keys(lines[places[0]]);
    return [root, beside(`fairness-${state.metric}`, () => [["method", ...keys], ...places.map((place) => [report.methods[place].label, ...keys.map((key) => lines[place][key])])])];
  });
}

// The same mark every few pixels along its row, so that pointing anywhere on a row finds it.
function withEnds(marks, root) {
  const width = root.viewBox.baseVal.width, steps = Math.ceil(width / 30);
  return marks.flatMap((mark) => [mark, ...Array.from({ length: steps }, (_, i) => ({ ...mark, x: 30 * i })).filter((copy) => Math.abs(copy.x - mark.x) > 15)]);
}

function calibration() {
  if (!report.measured.ece) return;
  const line = report.metrics.find((entry) => entry.name === "ece");
  const body = section("calibration", "Calibration", "Mark: expected calibration error (15 bins), mean over clients; line: from the first to the ninth decile of the clients; hollow ring: the largest error of a bin, mean over clients. Left is better.");
  drawn(body, (width) => {
    const spread = report.measured.ece.spread, most = report.measured.mce ? report.measured.mce.spread : [];
    const places = shown().filter((place) => isNumber(spread[place].mean));
    if (!places.length) return [nothing("Calibration was not measured.")];
    const tops = places.flatMap((place) => [spread[place].decile_9, most[place] ? most[place].mean : null]);
    const { root, sx, level } = rowsFrame(width, places, [0, extent(tops)[1]], axisTitle(line), line);
    const marks = places.map((place, row) => {
      const found = spread[place], y = level(row), lines = [report.methods[place].label, `ECE ${format(found.mean, line)}, SD over clients ${format(found.sd_ddof1, line)}`];
      segment(root, sx(found.decile_1), sx(found.decile_9), y, colourOf(place), 4, .6);
      root.append(marker(place, sx(found.mean), y, 6));
      if (most[place] && isNumber(most[place].mean)) {
        root.append(svg("circle", { cx: sx(most[place].mean), cy: y, r: 5, fill: "none", stroke: colourOf(place), "stroke-width": 2 }));
        lines.push(`MCE ${format(most[place].mean, line)}`);
      }
      return { x: sx(found.mean), y, lines };
    });
    inspect(root, withEnds(marks, root), "Calibration");
    const rows = () => [["method", "ece", "ece_sd_clients", "mce"], ...places.map((place) => [report.methods[place].label, spread[place].mean, spread[place].sd_ddof1, most[place] ? most[place].mean : null])];
    return [root, beside("calibration", rows)];
  });
}
