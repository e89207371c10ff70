"use strict";
// Where the numbers come from: settings, versions, and the manifest of every run.
function settingsTable(head, lines) {
  const rows = lines.map((cells) => html("tr", {}, ...cells.map((cell) => html("td", {}, cell))));
  return html("div", { class: "wide settings" }, html("table", {}, html("thead", {}, html("tr", {}, ...head.map((cell) => html("th", { class: "words", scope: "col" }, cell)))), html("tbody", {}, ...rows)));
}

function provenance() {
  const { common, differing } = report.settings;
  const body = section("provenance", "Configuration and provenance", "Every setting, and the manifest of every run: spec and its hash, versions, hardware, checksums, what the partition dropped.");
  const keys = Object.keys(differing);
  if (keys.length) {
    const lines = report.methods.map((method, place) => [method.label, ...keys.map((key) => differing[key][place])]);
    body.append(html("details", {}, html("summary", {}, "Settings in which the methods differ"), settingsTable(["Method", ...keys], lines)));
  }
  body.append(html("details", {}, html("summary", {}, "Settings common to all"), settingsTable(["Setting", "Value"], Object.entries(common))));
  const all = html("details", {}, html("summary", {}, `The ${report.runs.length} runs and their manifests`));
  body.append(all);
  const wholes = {};
  for (const run of report.runs) {
    const manifest = { ...wholes[run.method], ...run.manifest };
    for (const key of run.lacks) delete manifest[key];
    wholes[run.method] ??= manifest;
    const text = JSON.stringify(manifest, null, 2);
    const link = html("a", { download: `${run.name}.json`, href: "data:application/json," }, "Download manifest");
    const fill = () => link.setAttribute("href", `data:application/json;charset=utf-8,${encodeURIComponent(text)}`);
    for (const event of ["pointerenter", "focus", "click"]) link.addEventListener(event, fill);
    const details = html("details", { class: "run" }, html("summary", {}, `${report.methods[run.method].label}, seed ${run.seed}: ${run.name}`));
    details.addEventListener("toggle", () => {
      if (details.children.length === 1) details.append(link, html("pre", {}, text));
    });
    all.append(details);
  }
}
