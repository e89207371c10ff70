"use strict";
// Every method against one of them, by default the best: paired differences with intervals; hollow marks are not significant.
function pairOf(method, other) {
  for (const [a, b, difference, low, high, p, detectable] of measured().pairs) {
    if (a === method && b === other) return { difference, low, high, p, detectable };
    if (a === other && b === method) return { difference: -difference, low: isNumber(high) ? -high : null, high: isNumber(low) ? -low : null, p, detectable };
  }
  return null;
}

const chance = (p) => (!isNumber(p) ? "no verdict" : p < .001 ? "p < 0.001" : `p = ${p.toFixed(3)}`);

function bestPlace() {
  const scores = measured().leaderboard.map((line) => line.personal), sign = metric().higher ? 1 : -1;
  return scores.map((_, i) => i).filter((i) => isNumber(scores[i])).reduce((a, b) => (a === null || sign * scores[b] > sign * scores[a] ? b : a), null);
}

function differences() {
  if (report.methods.length < 2) return;
  const view = { reference: "best" };
  const pick = choice("Compared with", [["best", "the best"], ...methodOptions()], (value) => { view.reference = value; redraw(); });
  const body = section("differences", "Paired differences", "The method less the reference, on the same seeds and clients; a line is the 95 % interval (not corrected). A filled mark differs significantly (p < 0.05 after Holm's correction over all pairs), a hollow one does not, or there are too few seeds for a verdict.", [pick]);
  drawn(body, (width) => {
    if (!measured().compared) return [nothing("This metric is not compared where there are so many methods; choose the one that the runs are judged by.")];
    const reference = view.reference === "best" ? bestPlace() : Number(view.reference);
    const found = shown().filter((place) => place !== reference).map((place) => ({ place, ...pairOf(place, reference) })).filter((line) => isNumber(line.difference));
    if (!found.length) return [nothing("No method has seeds in common with the reference.")];
    found.sort((a, b) => (metric().higher ? b.difference - a.difference : a.difference - b.difference));
    const range = extent([0, ...found.flatMap((line) => [line.difference, line.low, line.high])], .05);
    const name = report.methods[reference].label, places = found.map((line) => line.place);
    const { root, sx, level, box } = rowsFrame(width, places, range, fitted(`Difference from ${name}${metric().percent ? " (points)" : ""}`, width * .6));
    root.append(svg("line", { class: "zero", x1: sx(0), x2: sx(0), y1: box.top, y2: box.bottom }));
    const marks = found.map((line, row) => {
      const y = level(row), sure = isNumber(line.p) && line.p < .05;
      if (isNumber(line.low)) segment(root, sx(line.low), sx(line.high), y, colourOf(line.place), 2.5, .8);
      root.append(marker(line.place, sx(line.difference), y, 5.5, sure ? {} : { fill: "var(--card)", stroke: colourOf(line.place), "stroke-width": 2 }));
      const lines = [`${report.methods[line.place].label} less ${name}`, `${points(line.difference)}${isNumber(line.low) ? `, 95 % interval ${points(line.low)} to ${points(line.high)}` : ""}`, chance(line.p)];
      return { x: sx(line.difference), y, lines: isNumber(line.detectable) ? [...lines, `found four times in five from ${points(line.detectable)} on`] : lines };
    });
    inspect(root, withEnds(marks, root), `Differences from ${name}`);
    const keys = ["difference", "low", "high", "p", "detectable"];
    return [root, beside(`differences-${state.metric}`, () => [["method", "reference", ...keys.map((key) => (key === "p" ? "p_holm" : key))], ...found.map((line) => [report.methods[line.place].label, name, ...keys.map((key) => line[key])])])];
  });
}
