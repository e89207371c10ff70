"use strict";
// What disturbances cost: per method the clean value, the disturbed one and their paired difference.
function disturbances() {
  const found = everything.disturbances;
  if (!found) return;
  const body = section("disturbances", "Under disturbance", `Final values: ${everything.reading}. ${found.note}`, [], "across");
  drawn(body, () => {
    const parts = found.tables.flatMap((part) => {
      const heads = part.header.map((text, i) => html("th", { scope: "col", class: i ? null : "words" }, text));
      const lines = part.methods.map((method, row) => {
        const cells = part.text[row].map((text) => html("td", {}, text === "-" ? "–" : text));
        return html("tr", {}, html("td", {}, named(method)), ...cells);
      });
      const table = html("table", {}, html("thead", {}, html("tr", {}, ...heads)), html("tbody", {}, ...lines));
      return [html("h3", {}, `${part.scene}: under ${part.under}`), html("div", { class: "wide" }, table)];
    });
    return [...parts, beside("disturbances", () => found.rows, false)];
  });
}
