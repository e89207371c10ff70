"use strict";
// A section of the page: title, what it shows, choices, and a body that is drawn anew when something changes.
function section(id, title, about, choices = []) {
  const body = html("div", { class: "body" });
  const found = html("section", { id, "aria-labelledby": `${id}-title` },
    html("h2", { id: `${id}-title` }, title), html("p", { class: "about" }, about),
    choices.length ? html("div", { class: "choices" }, ...choices) : null, body);
  document.getElementById("main").append(found);
  return body;
}

// A labelled choice; `options` are [value, text].
function choice(label, options, act) {
  const select = html("select", { on: { change: () => act(select.value) } }, ...options.map(([value, text]) => html("option", { value }, text)));
  return html("label", {}, `${label} `, select);
}

// Runs `draw(body)` now and at every redraw; `draw` gives the children.
function drawn(body, draw) {
  const act = () => {
    const old = body.querySelector("details[open]") !== null;
    body.replaceChildren(...draw(body.clientWidth || 320));
    if (old) for (const details of body.querySelectorAll(".beside details")) details.open = true;
  };
  drawers.push(act);
  act();
}

const nothing = (text) => html("p", { class: "about" }, text);
const methodOptions = () => report.methods.map((method, place) => [String(place), method.label]);
