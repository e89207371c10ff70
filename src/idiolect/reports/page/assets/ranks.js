"use strict";
// Mean ranks over scenes; two methods whose bars do not meet are told apart by Nemenyi's test.
function ranks() {
  const found = everything.ranks;
  if (!found) return;
  const verdict = found.p < found.level ? "the methods differ" : "the methods are not told apart";
  const about = `Mean rank over ${found.scenes} scenes, 1 is best; Friedman's test: p = ${found.p.toPrecision(2)}, ${verdict} at ${found.level}. A bar is half the critical difference (${found.distance.toFixed(2)}) to each side: methods whose bars do not meet are told apart.`;
  const body = section("ranks", "Ranks over scenes", about, [], "across");
  drawn(body, (width) => {
    const left = Math.min(190, width * .36), half = found.distance / 2, count = found.methods.length;
    const { root, sx } = frame(width, 24 * count + 56, { x: [Math.min(1, found.ranks[0] - half), Math.max(count, found.ranks.at(-1) + half)], y: [0, 1], xLabel: "Mean rank", xText: (tick) => (tick >= 1 && tick <= count ? String(tick) : ""), left, whole: true });
    const marks = found.methods.map((name, row) => {
      const y = 24 * row + 22, rank = found.ranks[row], look = found.looks[row], colour = `var(--m${look.colour})`;
      root.append(svg("text", { class: "name", x: left - 8, y: y + 4, "text-anchor": "end" }, fitted(name, left - 10)));
      segment(root, sx(rank - half), sx(rank + half), y, colour, 6, .35);
      root.append(sign(look, sx(rank), y, 5.5));
      return { x: sx(rank), y, lines: [name, `mean rank ${rank.toFixed(2)}`] };
    });
    inspect(root, withEnds(marks, root), "Mean ranks");
    return [root, beside("ranks", () => [["method", "mean_rank"], ...found.methods.map((name, row) => [name, found.ranks[row]])])];
  });
}
