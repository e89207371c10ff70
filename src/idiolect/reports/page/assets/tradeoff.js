"use strict";
// Aggregation against personalisation; a method without a global model stands hollow on the left edge.
function tradeoff() {
  const body = section("tradeoff", "Aggregation against personalisation", "Global model on the server's test set against the mean over all clients; lines are one SD over seeds. Hollow marks on the left edge have no global model.");
  drawn(body, (width) => {
    const lines = measured().leaderboard, places = shown().filter((place) => isNumber(lines[place].personal));
    if (!places.length) return [nothing("No client was measured.")];
    const reach = (key) => places.flatMap((place) => (isNumber(lines[place][key]) ? [lines[place][key] - (lines[place][`${key}_sd`] || 0), lines[place][key] + (lines[place][`${key}_sd`] || 0)] : []));
    const { root, sx, sy, box } = frame(width, 340, { x: extent(reach("global"), .12), y: extent(reach("personal"), .12), xLabel: `Global: ${axisTitle()}`, yLabel: "Personalised", xText: tickText(), yText: tickText() });
    const marks = places.map((place) => {
      const line = lines[place], whole = isNumber(line.global), x = whole ? sx(line.global) : box.left + 10, y = sy(line.personal);
      const arm = { stroke: colourOf(place), "stroke-width": 1.5, opacity: .7 };
      if (whole && isNumber(line.global_sd)) root.append(svg("line", { x1: sx(line.global - line.global_sd), x2: sx(line.global + line.global_sd), y1: y, y2: y, ...arm }));
      if (isNumber(line.personal_sd)) root.append(svg("line", { x1: x, x2: x, y1: sy(line.personal - line.personal_sd), y2: sy(line.personal + line.personal_sd), ...arm }));
      root.append(marker(place, x, y, 7, whole ? {} : { fill: "none", stroke: colourOf(place), "stroke-width": 2 }));
      const deviation = (sd) => (isNumber(sd) ? ` ± ${format(sd)}` : "");
      return { x, y, lines: [report.methods[place].label, `global ${format(line.global)}${deviation(line.global_sd)}`, `personalised ${format(line.personal)}${deviation(line.personal_sd)} (${report.methods[place].predictor})`] };
    });
    inspect(root, marks, "Aggregation against personalisation", 11);
    const keys = ["global", "global_sd", "personal", "personal_sd"];
    return [root, legend(), beside(`tradeoff-${state.metric}`, () => [["method", ...keys], ...places.map((place) => [report.methods[place].label, ...keys.map((key) => lines[place][key])])])];
  });
}
