"use strict";
// Who holds what: one bubble for each client and class, its area the number of samples.
const FEW = 9; // pixels a client needs at least

function partition() {
  if (!report.partitions.length) return;
  const view = { which: 0, first: 0 };
  const options = report.partitions.map((found, i) => [String(i), found.title]);
  const choices = options.length > 1 ? [choice("Partition", options, (value) => { view.which = Number(value); view.first = 0; redraw(); })] : [];
  const body = section("partition", "The partition", "Training samples of each client and class; the area of a bubble is their number.", choices);
  drawn(body, (width) => {
    const { counts, clients, title } = report.partitions[view.which];
    const left = 46, page = Math.min(counts.length, Math.max(1, Math.floor((width - left - 12) / FEW)));
    view.first = Math.min(view.first, Math.max(0, counts.length - page));
    const part = counts.slice(view.first, view.first + page), classes = counts[0].length;
    const row = Math.max(9, Math.min(22, 420 / classes)), most = Math.max(1, ...counts.flat());
    const { root, sx, sy } = frame(width, row * classes + 60, { x: [view.first - .7, view.first + page - .3], y: [-.7, classes - .3], xLabel: fitted(`Client (${title})`, width - left - 12), yLabel: "Class", xText: String, yText: (tick) => (Number.isInteger(tick) ? String(tick) : ""), left, whole: true, yCount: Math.min(classes, row * classes / 18) });
    const widest = .62 * Math.min(row, (1.3 * (width - left)) / page), marks = [];
    part.forEach((line, i) => line.forEach((count, label) => {
      if (!count) return;
      const client = view.first + i, x = sx(client), y = sy(label);
      root.append(svg("circle", { class: "bubble", cx: x, cy: y, r: Math.max(.7, widest * Math.sqrt(count / most)), fill: "var(--m0)", opacity: .75 }));
      marks.push({ x, y, lines: [`client ${client}, class ${label}`, `${count} sample${count > 1 ? "s" : ""}`] });
    }));
    inspect(root, marks, "Samples by client and class", 10);
    const parts = [root];
    if (page < counts.length) parts.push(pages(view, page, counts.length));
    if (counts.length < clients) parts.push(nothing(`Only the first ${counts.length} of ${clients} clients are drawn.`));
    const head = ["client", ...counts[0].map((_, label) => `class ${label}`)];
    return [...parts, beside("partition", () => [head, ...counts.map((line, client) => [client, ...line])])];
  });
}
