"use strict";
// The leaderboard: sorts by a click on a heading, filters with the controls of the page; its numbers are written as the tables write them.
const COLUMNS = [
  { key: "label", title: "Method", words: true },
  { key: "personal", title: "Personalised", sd: "personal_sd", scored: true },
  { key: "letters", title: "Groups", words: true, letters: true },
  { key: "low", title: "95 % interval", interval: true },
  { key: "global", title: "Global", sd: "global_sd", scored: true },
  { key: "worst", title: "Worst tenth", sd: "worst_sd", scored: true },
  { key: "never", title: "Never trained", written: "never_text" },
  { key: "sd_clients", title: "SD over clients", metric: true },
  { key: "predictor", title: "Predictor", words: true },
  { key: "down", title: "Down a round", text: humanBytes },
  { key: "up", title: "Up a round", text: humanBytes },
  { key: "seconds", title: "Seconds", text: (value) => (isNumber(value) ? value.toFixed(1) : "–") },
  { key: "seeds", title: "Seeds", text: String },
];

function leaderboardRows() {
  return listed().map((place) => {
    const method = report.methods[place];
    return { place, ...measured().leaderboard[place], ...report.costs[place], ...method, seeds: method.seeds.length };
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

const LIKE_THE_BEST = "best"; // in the place of letters where there are too many groups

const written = (row, key) => (row.text[key] === "-" || !(key in row.text) ? "–" : row.text[key]);
const unit = (column) => (metric().percent && (column.scored || column.interval || column.metric) ? " %" : "");

// Groups are named a to z, then A to Z, then by Greek letters; "{" comes after z and before those.
const letterKey = (letter) => (/[A-Z]/.test(letter) ? `{${letter}` : letter);

// One column for each letter, so that a letter's methods form a bar when the table is sorted by value.
function lettersCell(row, all) {
  if (!all.length) return html("td", { class: "words" }, measured().compared ? "no verdict" : "not compared");
  if (all[0] === LIKE_THE_BEST) return html("td", { class: "words" }, row.letters);
  const signs = all.map((letter) => html("span", { class: row.letters.includes(letter) ? "letter" : "no letter" }, row.letters.includes(letter) ? letter : " "));
  return html("td", { class: "words letters", "aria-label": row.letters || "not compared" }, ...signs);
}

function leaderboardCell(column, row, letters, leader) {
  const value = row[column.key];
  if (column.key === "label") {
    return html("td", {}, named(report.methods[row.place]));
  }
  if (column.letters) return lettersCell(row, letters);
  if (column.words) return html("td", { class: "words" }, value);
  if (column.interval) return html("td", {}, isNumber(value) ? `${written(row, "low")} to ${written(row, "high")}` : "–");
  if (column.written) return html("td", {}, isNumber(value) ? row[column.written] : "–");
  if (column.text) return html("td", {}, column.text(value));
  const spread = column.sd && isNumber(row[column.sd]) ? html("span", { class: "spread" }, ` ± ${written(row, column.sd)}`) : null;
  const top = column.key === "personal" && leader && [...leader].some((letter) => row.letters.includes(letter));
  return html("td", { class: top ? "best" : null }, written(row, column.key), spread);
}

function leaderboardAbout() {
  return `Final values: ${everything.reading}. Personalised: the named predictor, mean over all clients; ± is the SD over seeds, the interval counts seeds, and clients too where the partition is fixed. ${measured().leaderboard.some((line) => line.letters === LIKE_THE_BEST) ? "There are too many groups for letters. Those" : "Methods that share a letter cannot be told apart; those"} that cannot be told apart from the best are bold. Global: the shared model on the server's test set. Worst tenth: mean of the worst 10 % of the clients${report.costs.some((cost) => isNumber(cost.never)) ? " that trained" : ""}.${report.idle_note}${report.costs.some((cost) => !isNumber(cost.seconds)) ? " Seconds are left out: the runs come from different machines or do not name theirs." : ""} Press a heading to sort.`;
}

function leaderboard() {
  const order = { key: "personal", descending: null };
  const body = section("leaderboard", "Leaderboard", leaderboardAbout());
  const columns = COLUMNS.filter((column) => column.key !== "never" || report.costs.some((cost) => isNumber(cost.never)));
  const down = () => order.descending ?? metric().higher;
  drawn(body, () => {
    const rows = sorted(leaderboardRows(), order.key, down());
    if (!rows.length) return [nothing("No method passes the filter.")];
    const all = measured().leaderboard, scores = all.map((line) => line.personal).filter(isNumber);
    const letters = all.some((line) => line.letters === LIKE_THE_BEST) ? [LIKE_THE_BEST] : [...new Set(all.flatMap((line) => [...line.letters]))].sort((a, b) => (letterKey(a) < letterKey(b) ? -1 : 1));
    const best = (metric().higher ? Math.max : Math.min)(...scores);
    const leader = all.find((line) => line.personal === best)?.letters;
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
    const lines = rows.map((row) => html("tr", {}, ...columns.map((column) => leaderboardCell(column, row, letters, leader))));
    const keys = ["label", "predictor", "global", "global_sd", "personal", "personal_sd", "low", "high", "letters", "sd_clients", "worst", "worst_sd", "down", "up", "seconds", "seeds"];
    return [
      html("div", { class: "wide" }, html("table", {}, html("thead", {}, html("tr", {}, ...heads)), html("tbody", {}, ...lines))),
      beside(`leaderboard-${state.metric}`, () => [keys, ...rows.map((row) => keys.map((key) => row[key]))], false),
    ];
  });
}
