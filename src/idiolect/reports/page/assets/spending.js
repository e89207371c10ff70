"use strict";
// What methods spend: a table of clients and runs, and the value against each cost with the front of best trade-offs.
const many = (value) => {
  if (!isNumber(value)) return "–";
  for (const [unit, size] of [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) if (value >= size) return `${(value / size).toFixed(1)} ${unit}`;
  return String(Number(value.toFixed(1)));
};
const SPENDING = [
  ["steps_client", "Steps a client", many], ["steps_most", "most", many], ["flops_client", "FLOPs a client", many], ["flops_most", "most", many],
  ["bytes_down_client", "Down a client", humanBytes], ["bytes_up_client", "Up a client", humanBytes], ["bytes", "Bytes of the run", humanBytes], ["flops", "FLOPs of the run", many],
  ["seconds", "Seconds", (value) => (isNumber(value) ? value.toFixed(1) : "–")], ["memory", "Peak memory", humanBytes], ["gpu", "Peak GPU", humanBytes], ["joules", "Energy (J)", many],
];

const inBytes = (key) => ["bytes", "bytes_down", "bytes_up", "memory", "gpu"].includes(key);
const spentText = (key) => (inBytes(key) ? humanBytes : many);
const otherMachines = (found) => (found.one_machine || report.runs.length === 1 ? "" : " Seconds are left out: the runs come from different machines or do not name theirs.");

function spending() {
  const found = report.spending;
  if (!found) return;
  const body = section("spending", "Costs", "What a client does and sends in the whole run, mean and most over all clients, and what the run takes; means over seeds. Peak memory adds up the peaks of all processes of a run, and pages that they share count in each: with several processes it is an upper bound. A dash was not recorded." + otherMachines(found));
  drawn(body, () => {
    const places = shown(), kept = SPENDING.filter(([key]) => places.some((place) => isNumber(found.methods[place][key])));
    const head = html("tr", {}, html("th", { class: "words" }, "Method"), ...kept.map(([, title]) => html("th", {}, title)));
    const rows = places.map((place) => html("tr", {}, html("td", {}, named(report.methods[place])), ...kept.map(([key, , text]) => html("td", {}, text(found.methods[place][key])))));
    const keys = Object.keys(found.methods[0]);
    return [html("div", { class: "wide" }, html("table", {}, html("thead", {}, head), html("tbody", {}, ...rows))), beside("costs", () => [["method", ...keys], ...places.map((place) => [report.methods[place].label, ...keys.map((key) => found.methods[place][key])])], false)];
  });
  if (found.fronts.length) fronts(found);
}

function fronts(found) {
  const judged = report.metrics.find((line) => line.name === report.judged.name), values = report.measured[report.judged.name].leaderboard;
  const body = section("pareto", "Value against cost", `${report.judged.title} of every method against what its run costs, mean over seeds; steps are those of a mean client. A cost that all methods share is left out. The line joins methods that no other beats at a lower or equal cost.${found.one_machine ? "" : " Seconds, memory and energy are left out: the runs come from different machines or do not name theirs."}`);
  drawn(body, (width) => {
    const per = Math.min(found.fronts.length, width > 900 ? 3 : width > 620 ? 2 : 1), each = (width - 16 * (per - 1)) / per;
    const panels = found.fronts.map(({ key, title, front }) => {
      const places = shown().filter((place) => isNumber(found.methods[place][key]) && isNumber(values[place].personal));
      const { root, sx, sy } = frame(each, 320, { x: extent([0, ...places.map((place) => found.methods[place][key])], .05), y: extent(places.map((place) => values[place].personal), .1), xLabel: title, yLabel: axisTitle(judged), xText: spentText(key), yText: tickText(judged) });
      const at = (place) => [sx(found.methods[place][key]), sy(values[place].personal)];
      const kept = front.filter((place) => places.includes(place));
      if (kept.length > 1) root.append(svg("path", { d: pathOf(kept.map(at)), fill: "none", stroke: "var(--quiet)", "stroke-width": 1.5, class: "front" }));
      const marks = places.map((place) => {
        const [x, y] = at(place), best = front.includes(place);
        root.append(marker(place, x, y, best ? 7 : 5.5, best ? { stroke: "var(--ink)", "stroke-width": 1.2 } : { opacity: .75 }));
        return { x, y, lines: [report.methods[place].label, `${format(values[place].personal, judged)} at ${spentText(key)(found.methods[place][key])}`, ...(best ? ["on the front"] : [])] };
      });
      inspect(root, marks, title);
      return html("div", {}, html("h3", {}, title), root);
    });
    const box = html("div", { class: "panels", style: `grid-template-columns:repeat(${per},minmax(0,1fr))` }, ...panels);
    const rows = () => [["method", "cost", "spent", report.judged.name, "on_front"], ...found.fronts.flatMap(({ key, front }) => shown().map((place) => [report.methods[place].label, key, found.methods[place][key], values[place].personal, front.includes(place)]))];
    return [box, legend(), beside("pareto", rows)];
  });
}
