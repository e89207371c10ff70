"use strict";
// Looking closer: the nearest mark under the pointer, or the next one in the direction of an arrow key.
const tooltip = document.getElementById("tooltip");
const NEAR = 40;

function hideTooltip() {
  tooltip.hidden = true;
}

function showTooltip(lines, left, top) {
  tooltip.replaceChildren(...lines.map((line) => html("div", {}, line)));
  tooltip.hidden = false;
  const size = tooltip.getBoundingClientRect();
  const x = left + 14 + size.width > innerWidth ? left - 14 - size.width : left + 14;
  tooltip.style.left = `${Math.max(4, Math.min(x, innerWidth - size.width - 4))}px`;
  tooltip.style.top = `${Math.max(4, Math.min(top + 14, innerHeight - size.height - 4))}px`;
}

function towards(marks, from, key) {
  const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
  const cost = (mark) => {
    const along = (mark.x - from.x) * dx + (mark.y - from.y) * dy;
    const across = Math.abs((mark.x - from.x) * dy) + Math.abs((mark.y - from.y) * dx);
    return along > .5 ? along + 3 * across : Infinity;
  };
  const best = marks.reduce((a, b) => (cost(b) < cost(a) ? b : a));
  return cost(best) < Infinity ? best : from;
}

// Marks are {x, y, lines} in the drawing's pixels; `ring` is the size of the sign around the chosen one.
function inspect(root, marks, title, ring = 8) {
  root.setAttribute("role", "img");
  root.setAttribute("aria-label", `${title}. ${marks.length} marks; arrow keys go from one to the next.`);
  if (!marks.length) return;
  root.setAttribute("tabindex", "0");
  const sign = svg("circle", { class: "ring", r: ring, visibility: "hidden" });
  root.append(sign);
  let current = null;
  const place = () => root.getBoundingClientRect();
  const choose = (mark) => {
    current = mark;
    sign.setAttribute("cx", mark.x);
    sign.setAttribute("cy", mark.y);
    sign.setAttribute("visibility", "visible");
    const box = place(), ratio = box.width / root.viewBox.baseVal.width;
    showTooltip(mark.lines, box.left + mark.x * ratio, box.top + mark.y * ratio);
  };
  const leave = () => {
    sign.setAttribute("visibility", "hidden");
    hideTooltip();
  };
  const point = (event) => {
    const box = place(), ratio = root.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * ratio, y = (event.clientY - box.top) * ratio;
    const distance = (mark) => (mark.x - x) ** 2 + (mark.y - y) ** 2;
    const nearest = marks.reduce((a, b) => (distance(b) < distance(a) ? b : a));
    if (distance(nearest) < NEAR ** 2) choose(nearest);
    else leave();
  };
  root.addEventListener("pointermove", point);
  root.addEventListener("pointerdown", point);
  root.addEventListener("pointerleave", leave);
  root.addEventListener("blur", leave);
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape") leave();
    if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    choose(current ? towards(marks, current, event.key) : marks[0]);
  });
}
