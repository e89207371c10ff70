"use strict";
// Which scene is shown, and links into the page: `#scene=NAME`, `#curves`, or both as `#scene=NAME&at=curves`.
const severalScenes = everything.scenes.length > 1;

function linkTo(id, scene = report.name) {
  const words = new URLSearchParams();
  if (severalScenes) words.set("scene", scene);
  if (id && severalScenes) words.set("at", id);
  return severalScenes ? `#${words}` : `#${id}`;
}

function linked() {
  const text = decodeURIComponent(location.hash.slice(1).replaceAll("+", " "));
  if (!text.includes("=")) return { scene: null, at: text };
  const words = new URLSearchParams(location.hash.slice(1));
  return { scene: words.get("scene"), at: words.get("at") };
}

function showScene(name) {
  const found = everything.scenes.find((scene) => scene.name === name);
  if (!found || found === report && document.getElementById("main").dataset.scene === name) return;
  report = found;
  const names = report.metrics.map((line) => line.name);
  if (!names.includes(state.metric)) state.metric = names[0] ?? null;
  if (!report.methods.some((method) => method.predictor === state.predictor)) state.predictor = "";
  document.getElementById("main").dataset.scene = name;
  buildScene();
}

function follow() {
  const { scene, at } = linked();
  if (scene) showScene(scene);
  const target = at && document.getElementById(at);
  if (target) target.scrollIntoView();
}

// The list of sections; those of a scene follow the scene.
function contents() {
  const link = (found) => html("li", {}, html("a", { href: linkTo(found.id) }, found.querySelector("h2 .title").textContent));
  document.getElementById("contents").replaceChildren(...[...document.querySelectorAll("section[id]")].map(link));
  const heading = document.getElementById("scene-title");
  heading.textContent = severalScenes ? report.name : "";
  heading.hidden = !severalScenes;
}
