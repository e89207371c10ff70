"use strict";
// Methods against scenes: values with ranks, darker where the rank is better; a scene's heading goes to that scene.
function matrix() {
  const found = everything.matrix;
  if (!found) return;
  const body = section("matrix", "Methods and scenes", `Final values: ${everything.reading}, mean over clients and seeds. ${found.words}`, [], "across");
  drawn(body, () => {
    const heads = found.header.map((text, i) => {
      const scene = found.scenes[i - 1];
      return html("th", { scope: "col", class: i ? null : "words" }, scene ? html("a", { href: linkTo("leaderboard", scene) }, text) : text);
    });
    const lines = found.methods.map((method, row) => {
      const cells = found.text[row].map((text, i) => {
        const rank = found.ranks[row][i], share = isNumber(rank) ? Math.max(0, 1 - (rank - 1) / Math.max(1, found.methods.length - 1)) : 0;
        const tint = i < found.scenes.length ? `background:color-mix(in srgb, var(--accent) ${Math.round(34 * share)}%, transparent)` : null;
        return html("td", { style: tint, class: found.leading[row][i] ? "best" : null }, text === "-" ? "–" : text);
      });
      const name = html("td", {}, named(method));
      return html("tr", {}, name, ...cells);
    });
    const rows = () => [["method", "scene", "value", "rank", "leading"], ...found.methods.flatMap((method, row) => found.scenes.map((scene, i) => [method.label, scene, found.values[row][i], found.ranks[row][i], found.leading[row][i]]))];
    return [html("div", { class: "wide" }, html("table", {}, html("thead", {}, html("tr", {}, ...heads)), html("tbody", {}, ...lines))), beside("scenes", rows, false)];
  });
}
