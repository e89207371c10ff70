"use strict";
// A value against the bytes that had been sent when it was measured.
function communication() {
  const view = { way: "both", panel: "personal" };
  const redo = (key) => (value) => { view[key] = value; redraw(); };
  const choices = [
    choice("Bytes", [["both", "down and up"], ["down", "down"], ["up", "up"]], redo("way")),
    choice("Model", [["personal", "personalised"], ["global", "global"]], redo("panel")),
  ];
  const body = section("communication", "Communication", "The value after all bytes sent so far, all clients together, mean over seeds. A ringed mark is measured at the end of the run alone.", choices);
  const sent = (place, round) => {
    const bytes = measured().bytes[place], i = bytes.round.indexOf(round);
    return { both: bytes.down[i] + bytes.up[i], down: bytes.down[i], up: bytes.up[i] }[view.way];
  };
  const curvesOf = (place) => (view.panel === "personal" ? ["personal", "end"] : ["global"]).map((name) => [name, measured().curves[place][name]]).filter(([, curve]) => curve.round.length);
  drawn(body, (width) => {
    const all = shown().flatMap((place) => curvesOf(place).map(([name, curve]) => ({ place, name, curve, at: curve.round.map((round) => sent(place, round)) })));
    if (!all.length) return [nothing("Not measured."), legend()];
    const most = Math.max(1, ...all.flatMap(({ at }) => at));
    const { root, sx, sy } = frame(width, 320, { x: [0, most * 1.03], y: extent(all.flatMap(({ curve }) => curve.value)), xLabel: "Bytes sent so far", yLabel: axisTitle(), xText: humanBytes, yText: tickText() });
    const marks = all.flatMap(({ place, name, curve, at }) => {
      const points = drawLine(root, place, curve, at, sx, sy);
      if (name === "end") points.forEach(({ x, y }) => root.append(marker(place, x, y, 6, { stroke: "var(--ink)", "stroke-width": 1.5 })));
      return points.map(({ x, y, i }) => ({ x, y, lines: curveLines(place, curve.round[i], curve.value[i], null, [`${humanBytes(at[i])} sent`]) }));
    });
    inspect(root, marks, "Value against bytes");
    const rows = () => [["method", "round", "bytes", state.metric], ...all.flatMap(({ place, curve, at }) => at.map((bytes, i) => [report.methods[place].label, curve.round[i], bytes, curve.value[i]]))];
    return [root, legend(), beside(`communication-${state.metric}`, rows)];
  });
}
