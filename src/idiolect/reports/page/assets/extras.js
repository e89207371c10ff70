"use strict";
// Pictures of what only some runs record; their numbers are those that the runs are judged by, shares in percent, whatever metric is chosen above.
const plainTick = (value) => String(Number(value.toPrecision(6)));
const judgedUnit = (text) => (report.judged.percent ? text : "");
const seen = (value, digits = 2) => (isNumber(value) ? value.toFixed(digits) : "–");

// One panel: a line for each method that has one. `about` gives the text of a point.
function extraPanel(panel, width, options, about) {
  const places = shown().filter((place) => panel.lines[place]);
  const curves = places.map((place) => ({ place, curve: { round: panel.lines[place].x, value: panel.lines[place].value, sd: panel.lines[place].sd || [] } }));
  const reach = curves.flatMap(({ curve }) => curve.value.flatMap((value, i) => [value - (curve.sd[i] || 0), value + (curve.sd[i] || 0)]));
  const { root, sx, sy, box } = frame(width, 280, { x: extent(curves.flatMap(({ curve }) => curve.round), .03), y: extent([...reach, ...(options.from ?? [])]), xText: plainTick, yText: options.yText ?? plainTick, ...options });
  if (options.zero) root.append(svg("line", { class: "zero", x1: box.left, x2: box.right, y1: sy(0), y2: sy(0) }));
  const marks = curves.flatMap(({ place, curve }) => {
    const points = options.dots ? curve.round.map((x, i) => ({ x: sx(x), y: sy(curve.value[i]), i })) : drawLine(root, place, curve, curve.round, sx, sy);
    if (options.dots) points.forEach(({ x, y }) => root.append(marker(place, x, y, 5)));
    return points.map(({ x, y, i }) => ({ x, y, lines: [report.methods[place].label, ...about(panel.lines[place], i)] }));
  });
  inspect(root, marks, panel.title);
  return html("div", {}, html("h3", {}, panel.title), root);
}

function extraRows(panels, names) {
  const lines = panels.flatMap((panel) => shown().filter((place) => panel.lines[place]).flatMap((place) => {
    const line = panel.lines[place];
    return line.x.map((x, i) => [panel.title, report.methods[place].label, x, ...names.map((name) => (line[name] ? line[name][i] : null))]);
  }));
  return [["panel", "method", "x", ...names], ...lines];
}

// A section for one kind of picture, or none where no run has it.
function extra(name, title, text, options, about, names = ["value", "sd"]) {
  const panels = report.extras[name];
  if (!panels) return;
  const body = section(name, title, text), has = (place) => panels.some((panel) => panel.lines[place]);
  drawn(body, (width) => {
    if (!shown().some(has)) return [nothing("None of the methods shown has it."), legend(has)];
    const several = panels.length > 1 && width > 620, each = several ? (width - 16 * (panels.length - 1)) / panels.length : width;
    const drawings = panels.map((panel) => extraPanel(panel, each, { ...options, yLabel: { Mega: "Megabytes", Giga: "Gigaflops", Simu: "Seconds" }[panel.title.slice(0, 4)] ?? options.yLabel }, about));
    const box = html("div", { class: "panels", style: `grid-template-columns:repeat(${several ? panels.length : 1},minmax(0,1fr))` }, ...drawings);
    return [box, legend(has), beside(name, () => extraRows(panels, names))];
  });
}

function targets() {
  const about = (line, i) => [`${seen(line.value[i])} to reach ${seen(line.x[i], 1)}${judgedUnit(" %")}`];
  extra("targets", "Cost of reaching a target", `Rounds, and megabytes of all clients together, until the mean ${report.judged.word} over all clients is first reached; mean over seeds. A line ends where its method gets no further.`, { xLabel: `Personalised ${report.judged.word}${judgedUnit(" (%)")}`, yLabel: "Rounds", from: [0] }, about, ["value"]);
}

function degradation() {
  const about = (line, i) => [`round ${line.x[i]}: ${seen(line.value[i])}${judgedUnit(" points")}`, ...(isNumber(line.sd[i]) ? [`SD over seeds ${seen(line.sd[i])}`] : [])];
  extra("degradation", "Local degradation", `${report.judged.title} of the model a client downloads less that of the one it made when it last took part, mean over the selected.${report.judged.higher ? " Below 0 the download takes something away." : ""}`, { xLabel: "Round", yLabel: report.judged.percent ? "Change (points)" : "Change", zero: true, whole: true, from: [0] }, about);
}

function profile() {
  const about = (line, i) => [`coefficient ${line.x[i]}: ${seen(line.value[i])}${judgedUnit(" %")}`, `SD over clients ${seen(line.sd[i])}`, ...(isNumber(line.server[i]) ? [`global model on the server's test set ${seen(line.server[i])}${judgedUnit(" %")}`] : [])];
  extra("profile", "Between the shared and the private model", `${report.judged.title} of mixtures at the end, mean over clients; the band is one SD over clients, n - 1. To take the best off this picture would be a choice made on test data.`, { xLabel: "Mixing coefficient: 0 shared, 1 private", yLabel: `${report.judged.title}${judgedUnit(" (%)")}` }, about, ["value", "sd", "server"]);
}

function teachers() {
  const about = (line, i) => [`client ${line.x[i]}: round ${seen(line.value[i], 1)}`];
  extra("teachers", "When each client's teacher was kept", "The round whose model had the least validation loss on the client, mean over seeds.", { xLabel: "Client", yLabel: "Round", whole: true, dots: true, from: [0] }, about, ["value"]);
}
