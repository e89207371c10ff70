"use strict";
// The numbers behind a picture: a CSV to download and a table to unfold, both made when they are asked for.
function csvCell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
const csvOf = (rows) => `${rows.map((row) => row.map(csvCell).join(",")).join("\r\n")}\r\n`;

// The table is shown whole, or in a box of its own height that scrolls.
function tableOf([head, ...rows], boxed = true) {
  const line = (name, row) => html("tr", {}, ...row.map((cell) => html(name, {}, cell === null || cell === undefined ? "" : String(cell))));
  return html("div", { class: boxed ? "scroll wide" : "wide" }, html("table", {}, html("thead", {}, line("th", head)), html("tbody", {}, ...rows.map((row) => line("td", row)))));
}

// `picture` is false below a table, which has no drawing to save.
function beside(name, rows, picture = true) {
  const link = html("a", { class: "file", download: `${name}.csv`, href: "data:text/csv," }, "CSV");
  const fill = () => link.setAttribute("href", `data:text/csv;charset=utf-8,${encodeURIComponent(csvOf(rows()))}`);
  for (const event of ["pointerenter", "focus", "click"]) link.addEventListener(event, fill);
  const details = html("details", {}, html("summary", {}, "Numbers"));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(tableOf(rows()));
  });
  return html("div", { class: "beside" }, ...(picture ? pictureButtons(name) : []), link, details);
}
