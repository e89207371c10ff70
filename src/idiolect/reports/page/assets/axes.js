"use strict";
// Scales and axes in pixels of the screen, so that text stays readable however narrow the page is.
function ticks(low, high, count) {
  const raw = (high - low) / Math.max(1, count) || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((times) => times * power >= raw) * power;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1) found.push(i * step);
  return found;
}

// Low and high of the numbers with some room, or 0 to 1 where there are none.
function extent(values, room = .06) {
  const numbers = values.filter(isNumber);
  if (!numbers.length) return [0, 1];
  const low = numbers.reduce((a, b) => Math.min(a, b)), high = numbers.reduce((a, b) => Math.max(a, b));
  const edge = (high - low || Math.abs(high) || 1) * room;
  return [low - edge, high + edge];
}

const scale = ([low, high], from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);

// A frame with grid and labels; gives the drawing, its scales and its inner edges.
function frame(width, height, { x, y, xLabel, yLabel, xText, yText, left = 46, whole = false, yCount = height / 55 }) {
  const box = { left, right: width - 12, top: 10, bottom: height - 40 };
  const sx = scale(x, box.left, box.right), sy = scale(y, box.bottom, box.top);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height });
  for (const tick of yText ? ticks(y[0], y[1], yCount) : []) {
    root.append(svg("line", { class: "grid", x1: box.left, x2: box.right, y1: sy(tick), y2: sy(tick) }));
    root.append(svg("text", { x: box.left - 6, y: sy(tick) + 4, "text-anchor": "end" }, yText(tick)));
  }
  for (const tick of ticks(x[0], x[1], width / 80).filter((value) => !whole || Number.isInteger(value))) {
    root.append(svg("line", { class: "grid", x1: sx(tick), x2: sx(tick), y1: box.top, y2: box.bottom }));
    root.append(svg("text", { x: sx(tick), y: box.bottom + 16, "text-anchor": "middle" }, xText(tick)));
  }
  root.append(svg("text", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, xLabel));
  if (yLabel) root.append(svg("text", { x: 12, y: (box.top + box.bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(box.top + box.bottom) / 2})` }, yLabel));
  return { root, sx, sy, box };
}

// A tick of a metric: percent without its sign where the metric is a share.
function tickText(line = metric()) {
  return (value) => String(Number((line.percent ? 100 * value : value).toPrecision(6)));
}
const axisTitle = (line = metric()) => (line.percent ? `${line.title} (%)` : line.title);
