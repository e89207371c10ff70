"use strict";
// True against predicted class, a small map for one method; a row adds up to 100 %.
function confusion() {
  const found = report.confusion;
  if (!found) return;
  const places = report.methods.map((_, place) => place).filter((place) => found[place]);
  const view = { place: places[0] };
  const pick = choice("Method", places.map((place) => [String(place), report.methods[place].label]), (value) => { view.place = Number(value); redraw(); });
  const body = section("confusion", "Confusions", "How often a sample of a class (row) is predicted as a class (column), in percent of the row; all clients and seeds together.", [pick]);
  drawn(body, (width) => {
    const { classes, counts } = found[view.place], left = Math.min(120, width * .25), wide = Math.min(width, left + 46 * classes.length);
    const cell = (wide - left - 4) / classes.length, high = Math.max(15, Math.min(26, cell)), height = high * classes.length + 26;
    const root = svg("svg", { viewBox: `0 0 ${wide} ${height}`, height, style: `width:${wide}px` }), marks = [];
    counts.forEach((row, truth) => {
      const total = row.reduce((a, b) => a + b, 0);
      root.append(svg("text", { class: "name", x: left - 6, y: high * truth + high / 2 + 4, "text-anchor": "end" }, fitted(classes[truth], left - 8)));
      row.forEach((count, guess) => {
        const share = total ? count / total : 0, x = left + cell * guess, y = high * truth;
        root.append(svg("rect", { x, y, width: cell - 1, height: high - 1, fill: heat(share) }));
        if (cell > 30 && share >= .005) root.append(svg("text", { x: x + cell / 2, y: y + high / 2 + 4, "text-anchor": "middle", style: `fill:${share > .55 ? "#000" : "#fff"}` }, (100 * share).toFixed(0)));
        marks.push({ x: x + cell / 2, y: y + high / 2, lines: [`${classes[truth]} as ${classes[guess]}`, `${count} of ${total} (${(100 * share).toFixed(1)} %)`] });
      });
    });
    classes.forEach((name, i) => root.append(svg("text", { x: left + cell * (i + .5), y: height - 8, "text-anchor": "middle" }, fitted(name, cell - 2))));
    inspect(root, marks, `Confusions of ${report.methods[view.place].label}`, Math.min(cell, high) / 2);
    return [root, beside("confusion", () => [["truth", ...classes], ...counts.map((row, truth) => [classes[truth], ...row])])];
  });
}
