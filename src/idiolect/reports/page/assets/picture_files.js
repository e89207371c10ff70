"use strict";
// A drawing as a file: everything visible in a section's body, legend and panel titles too, as one SVG; PNG is drawn from that.
const DRAWN = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "font-weight", "text-anchor"];

function inked(original) {
  const copy = original.cloneNode(true);
  const from = [original, ...original.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const name of DRAWN) to[i].setAttribute(name, style.getPropertyValue(name));
    to[i].removeAttribute("class");
  });
  for (const ring of copy.querySelectorAll("[visibility=hidden]")) ring.remove();
  return copy;
}

function wordsAt(element, left, top) {
  const box = element.getBoundingClientRect(), style = getComputedStyle(element);
  const size = parseFloat(style.fontSize), x = box.left - left + parseFloat(style.paddingLeft), y = box.top - top + box.height / 2 + size * .35;
  return svg("text", { x, y, fill: style.color, "font-size": size, "font-family": style.fontFamily, "font-weight": style.fontWeight }, element.textContent);
}

function pictureOf(body) {
  const around = body.getBoundingClientRect(), inside = [];
  for (const part of body.querySelectorAll("svg")) {
    const box = part.getBoundingClientRect(), off = part.closest("button[aria-pressed=false]");
    if (off || !box.width) continue;
    const copy = inked(part);
    for (const [name, value] of Object.entries({ x: box.left - around.left, y: box.top - around.top, width: box.width, height: box.height })) copy.setAttribute(name, value);
    inside.push([copy, box.bottom]);
  }
  for (const words of body.querySelectorAll("h3, .legend button[aria-pressed=true] span, .summary-line")) inside.push([wordsAt(words, around.left, around.top), words.getBoundingClientRect().bottom]);
  const height = Math.max(1, ...inside.map(([, bottom]) => bottom - around.top)) + 8;
  const ground = svg("rect", { width: around.width, height, fill: getComputedStyle(body.closest("section")).backgroundColor });
  const whole = svg("svg", { xmlns: SVG, viewBox: `0 0 ${around.width} ${height}`, width: around.width, height }, ground, ...inside.map(([part]) => part));
  return { text: new XMLSerializer().serializeToString(whole), width: around.width, height };
}

function save(name, address) {
  html("a", { download: name, href: address }).click();
}

const svgAddress = (text) => `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;

async function pngAddress({ text, width, height }, times = 2) {
  const picture = new Image();
  picture.src = svgAddress(text);
  await picture.decode();
  const canvas = html("canvas", { width: Math.round(times * width), height: Math.round(times * height) });
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/png");
}

function pictureButtons(name) {
  const body = (event) => event.currentTarget.closest(".body");
  const asSvg = (event) => save(`${name}.svg`, svgAddress(pictureOf(body(event)).text));
  const asPng = async (event) => save(`${name}.png`, await pngAddress(pictureOf(body(event))));
  return [["SVG", asSvg], ["PNG", asPng]].map(([kind, act]) => html("button", { type: "button", class: "file", "data-file": kind, on: { click: act } }, kind));
}
