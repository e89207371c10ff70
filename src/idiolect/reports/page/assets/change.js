"use strict";
// Who gains and who loses by going from the reference to a method, on the same clients and seeds.
const BARS = 20;

// Bars of equal width with an edge at 0; [edge, next), the last closed.
function changeHistogram(differences, bins = BARS) {
  const half = Math.ceil(bins / 2), reach = Math.max(...differences.map(Math.abs)) || 1;
  const edges = Array.from({ length: 2 * half + 1 }, (_, i) => reach * ((i - half) / half));
  const counts = new Array(2 * half).fill(0);
  for (const value of differences) {
    let bar = edges.findLastIndex((edge) => edge <= value);
    if (bar === 2 * half) bar -= 1;
    counts[bar] += 1;
  }
  return { edges, counts };
}

function changesOf(method, reference) {
  const { clients, values } = measured().clients;
  const [a, b] = [values[method], values[reference]];
  const paired = String(report.methods[method].seeds) === String(report.methods[reference].seeds);
  if (!paired || clients.some((_, i) => isNumber(a[i]) !== isNumber(b[i]))) return null;
  return clients.map((client, i) => [client, a[i] - b[i]]).filter(([, value]) => isNumber(value) && !Number.isNaN(value));
}

// What a paired test over clients says of the two, corrected for the number of pairs.
function verdict(method, reference) {
  const found = pairOf(method, reference);
  if (!measured().compared) return " This metric is not compared where there are so many methods.";
  if (!found) return "";
  const reach = isNumber(found.detectable) ? ` A mean difference between these two below ${points(found.detectable)} would be missed more often than one time in five.` : "";
  return isNumber(found.p) ? ` Paired by seed and client, corrected for all pairs (Holm): ${chance(found.p)}.` : ` There are too few seeds for a verdict; three are needed.${reach}`;
}

function change() {
  const toward = metric().higher ? 1 : -1, scores = measured().leaderboard.map((line) => (isNumber(line.personal) ? toward * line.personal : -Infinity));
  const avg = report.methods.findIndex((method) => /^fedavg(\(|$)/.test(method.method));
  const view = { reference: Math.max(0, avg), method: 0 };
  view.method = scores.map((_, i) => i).filter((i) => i !== view.reference || scores.length === 1).reduce((a, b) => (scores[b] > scores[a] ? b : a));
  const pick = (label, key) => {
    const found = choice(label, methodOptions(), (value) => { view[key] = Number(value); redraw(); });
    found.querySelector("select").value = String(view[key]);
    found.querySelector("select").id = `change-${key}`;
    return found;
  };
  const body = section("change", "Change of every client", `The method's value less that of the reference, client by client.${isRedrawn() ? " Each data seed draws clients of its own, which all count." : ""}`, [pick("Method", "method"), pick("Reference", "reference")]);
  drawn(body, (width) => {
    const found = changesOf(view.method, view.reference);
    if (!found) return [nothing("These two do not have the same seeds and clients and cannot be paired.")];
    if (!found.length) return [nothing("No client was measured.")];
    const { edges, counts } = changeHistogram(found.map(([, value]) => value));
    const { root, sx, sy, box } = frame(width, 260, { x: [edges[0], edges.at(-1)], y: [0, Math.max(...counts) * 1.12], xLabel: `Change of ${metric().title.toLowerCase()}${metric().percent ? " (points)" : ""}`, yLabel: "Clients", xText: tickText(), yText: (tick) => (Number.isInteger(tick) ? String(tick) : "") });
    const marks = [];
    counts.forEach((count, i) => {
      if (!count) return;
      const better = (edges[i] >= 0) === metric().higher, x = sx(edges[i]), wide = sx(edges[i + 1]) - x;
      root.append(svg("rect", { class: "bar", x: x + .5, y: sy(count), width: Math.max(1, wide - 1), height: box.bottom - sy(count), fill: better ? "var(--gain)" : "var(--loss)" }));
      root.append(svg("text", { class: "on-bar", x: x + wide / 2, y: sy(count) - 4, "text-anchor": "middle" }, String(count)));
      marks.push({ x: x + wide / 2, y: sy(count), lines: [`${count} client${count > 1 ? "s" : ""}`, `change from ${points(edges[i])} to ${points(edges[i + 1])}`] });
    });
    root.append(svg("line", { class: "zero", x1: sx(0), x2: sx(0), y1: box.top, y2: box.bottom }));
    inspect(root, marks, "Histogram of changes");
    const worse = found.filter(([, value]) => (metric().higher ? value < 0 : value > 0)).length;
    const mean = found.reduce((sum, [, value]) => sum + value, 0) / found.length;
    const text = `${worse} of ${found.length} ${isRedrawn() ? "clients, each of one data seed," : "clients"} are worse off with ${report.methods[view.method].label} than with ${report.methods[view.reference].label}; the mean change is ${points(mean)}.${verdict(view.method, view.reference)}`;
    return [html("p", { class: "summary-line" }, text), root, beside(`change-${state.metric}`, () => [["client", "change"], ...found])];
  });
}
