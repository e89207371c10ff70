"use strict";
// The leaderboard: sorts by a click on a heading, filters with the controls of the page.
const COLUMNS = [
  { key: "label", title: "Method", words: true },
  { key: "personal", title: "Personalised", sd: "personal_sd", scored: true },
  { key: "global", title: "Global", sd: "global_sd", scored: true },
  { key: "worst", title: "Worst tenth", sd: "worst_sd", scored: true },
  { key: "low", title: "95 % interval", interval: true },
  { key: "sd_clients", title: "SD over clients", metric: true },
  { key: "predictor", title: "Predictor", words: true },
  { key: "down", title: "Down a round", text: humanBytes },
  { key: "up", title: "Up a round", text: humanBytes },
  { key: "seconds", title: "Seconds", text: (value) => (isNumber(value) ? value.toFixed(1) : "–") },
  { key: "seeds", title: "Seeds", text: String },
  { key: "scene", title: "Scene", words: true },
];

function leaderboardRows() {
  return listed().map((place) => {
    const method = report.methods[place];
    const scene = [method.dataset, method.partition, method.model].filter(Boolean).join(", ");
    return { place, ...measured().leaderboard[place], ...report.costs[place], ...method, seeds: method.seeds.length, scene };
  });
}

function sorted(rows, key, descending) {
  const sign = descending ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [x, y] = [a[key], b[key]];
    if (!isNumber(x) && typeof x !== "string") return isNumber(y) || typeof y === "string" ? 1 : 0;
    if (!isNumber(y) && typeof y !== "string") return -1;
    return sign * (isNumber(x) ? x - y : x.localeCompare(y));
  });
}

const bare = (value) => (isNumber(value) ? (metric().percent ? (100 * value).toFixed(1) : value.toFixed(3)) : "–");
const unit = (column) => (metric().percent && (column.scored || column.interval || column.metric) ? " %" : "");

function leaderboardCell(column, row, best) {
  const value = row[column.key];
  if (column.key === "label") {
    return html("td", {}, html("span", { class: "swatch", style: `background:${colourOf(row.place)}` }), value);
  }
  if (column.words) return html("td", { class: "words" }, value);
  if (column.interval) return html("td", {}, isNumber(value) ? `${bare(row.low)} to ${bare(row.high)}` : "–");
  if (column.text) return html("td", {}, column.text(value));
  const spread = column.sd && isNumber(row[column.sd]) ? html("span", { class: "spread" }, ` ± ${bare(row[column.sd])}`) : null;
  const top = column.scored && isNumber(value) && value === best[column.key];
  return html("td", { class: top ? "best" : null }, bare(value), spread);
}

function leaderboard() {
  const order = { key: "personal", descending: null };
  const about = "Global: the shared model on the server's test set. Personalised: the named predictor, mean over all clients; ± is the SD over seeds, the interval is over clients (bootstrap). Worst tenth: mean of the worst 10 % of the clients. Press a heading to sort.";
  const body = section("leaderboard", "Leaderboard", about);
  const scenes = new Set(leaderboardRows().map((row) => row.scene));
  const columns = COLUMNS.filter((column) => column.key !== "scene" || scenes.size > 1);
  const down = () => order.descending ?? metric().higher;
  drawn(body, () => {
    const rows = sorted(leaderboardRows(), order.key, down());
    if (!rows.length) return [nothing("No method passes the filter.")];
    const best = {};
    for (const { key, scored } of columns) {
      const numbers = rows.map((row) => row[key]).filter(isNumber);
      if (scored && rows.length > 1) best[key] = (metric().higher ? Math.max : Math.min)(...numbers);
    }
    const heads = columns.map((column) => {
      const press = () => {
        const first = column.words ? false : metric().higher;
        order.descending = order.key === column.key ? !down() : first;
        order.key = column.key;
        redraw();
        body.querySelector(`[data-key="${column.key}"]`).focus();
      };
      const direction = order.key !== column.key ? "none" : down() ? "descending" : "ascending";
      return html("th", { "aria-sort": direction, class: column.words ? "words" : null, scope: "col" }, html("button", { type: "button", "data-key": column.key, on: { click: press } }, column.title + unit(column)));
    });
    const lines = rows.map((row) => html("tr", {}, ...columns.map((column) => leaderboardCell(column, row, best))));
    const keys = ["label", "predictor", "global", "global_sd", "personal", "personal_sd", "low", "high", "sd_clients", "worst", "worst_sd", "down", "up", "seconds", "seeds", "scene"];
    return [
      html("div", { class: "wide" }, html("table", {}, html("thead", {}, html("tr", {}, ...heads)), html("tbody", {}, ...lines))),
      beside(`leaderboard-${state.metric}`, () => [keys, ...rows.map((row) => keys.map((key) => row[key]))]),
    ];
  });
}
