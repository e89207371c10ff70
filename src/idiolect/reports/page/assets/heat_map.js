"use strict";
// Every client under every method. The colours are those of cividis, which reads the same with any colour vision.
const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];

function heat(share) {
  const at = Math.min(.9999, Math.max(0, share)) * (CIVIDIS.length - 1), i = Math.floor(at);
  const channel = (hex, k) => parseInt(hex.slice(1 + 2 * k, 3 + 2 * k), 16);
  const mix = [0, 1, 2].map((k) => Math.round(channel(CIVIDIS[i], k) + (at - i) * (channel(CIVIDIS[i + 1], k) - channel(CIVIDIS[i], k))));
  return `rgb(${mix.join(",")})`;
}

// Where seeds redraw the clients, a name has the data seed before it, and a client is one data seed's.
const isRedrawn = () => measured().clients.clients.some((client) => String(client).startsWith("data seed "));
const clientName = (client) => (isNumber(client) ? `client ${client}` : client);

// `0/3` for client 3 of data seed 0.
const shortName = (client) => String(client).replace(/^data seed (.*), client (.*)$/, "$1/$2").split(" ").at(-1);

function clientOrder(by) {
  const { clients, values } = measured().clients;
  const places = clients.map((_, i) => i);
  if (by === "number") return places;
  const mean = (i) => {
    const numbers = shown().map((place) => values[place][i]).filter(isNumber);
    return numbers.reduce((a, b) => a + b, 0) / (numbers.length || 1);
  };
  const means = places.map(mean);
  return places.sort((a, b) => means[a] - means[b]);
}

function heatMap() {
  const view = { by: "number", first: 0 };
  const order = choice("Clients", [["number", "by number"], ["mean", "by their mean"]], (value) => { view.by = value; view.first = 0; redraw(); });
  const body = section("heat-map", "Every client under every method", `The final value of each client${isRedrawn() ? ". Each data seed draws clients of its own: a column is one data seed's client, 0/3 is client 3 of data seed 0, and not client 3 of another" : ", its mean over seeds"}. An empty cell was not measured.`, [order]);
  drawn(body, (width) => {
    const { clients, values } = measured().clients, places = shown();
    if (!clients.length || !places.length) return [nothing("No client was measured.")];
    const left = Math.min(170, width * .34), wanted = Math.max(1, Math.floor((width - left - 8) / 9));
    const page = Math.min(wanted, clients.length);
    view.first = Math.min(view.first, Math.max(0, clients.length - page));
    const columns = clientOrder(view.by).slice(view.first, view.first + page);
    const cell = Math.min(44, (width - left - 8) / page), height = 26 * places.length + 26;
    const numbers = places.flatMap((place) => values[place]).filter(isNumber);
    const range = extent(numbers, 0), root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height });
    const marks = [];
    places.forEach((place, row) => {
      const label = report.methods[place].label;
      root.append(svg("text", { class: "name", x: left - 8, y: 26 * row + 17, "text-anchor": "end" }, fitted(label, left - 10)));
      columns.forEach((client, column) => {
        const value = values[place][client], x = left + cell * column, y = 26 * row;
        if (!isNumber(value)) return;
        const share = (value - range[0]) / (range[1] - range[0] || 1);
        root.append(svg("rect", { x, y, width: Math.max(1, cell - 1), height: 25, fill: heat(metric().higher ? share : 1 - share) }));
        marks.push({ x: x + cell / 2, y: y + 13, lines: [label, `${clientName(clients[client])}: ${format(value)}`] });
      });
    });
    const every = Math.ceil(30 / cell);
    columns.forEach((client, column) => {
      if (column % every === 0) root.append(svg("text", { x: left + cell * (column + .5), y: height - 8, "text-anchor": "middle" }, shortName(clients[client])));
    });
    inspect(root, marks, "Clients against methods", Math.max(6, cell / 2));
    const parts = [root, heatKey(range)];
    if (page < clients.length) parts.push(pages(view, page, clients.length));
    const rows = () => [["client", ...places.map((place) => report.methods[place].label)], ...clients.map((client, i) => [client, ...places.map((place) => values[place][i])])];
    return [...parts, beside(`clients-${state.metric}`, rows)];
  });
}

function heatKey([low, high]) {
  const stops = metric().higher ? CIVIDIS : [...CIVIDIS].reverse();
  return html("div", { class: "key" }, format(low, metric(), 0), html("span", { class: "scale", style: `background:linear-gradient(90deg,${stops.join(",")})` }), format(high, metric(), 0));
}

function pages(view, page, total) {
  const go = (step) => () => { view.first = Math.max(0, view.first + step * page); redraw(); };
  const button = (text, step, off) => html("button", { type: "button", disabled: off ? "" : null, on: { click: go(step) } }, text);
  return html("div", { class: "choices" }, button("Earlier", -1, view.first === 0), `clients ${view.first + 1} to ${Math.min(total, view.first + page)} of ${total}`, button("Later", 1, view.first + page >= total));
}
