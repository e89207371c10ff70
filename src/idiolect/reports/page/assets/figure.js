"use strict";
// A section of the page: title with a link to itself, what it shows, choices, and a body that is drawn anew when something changes.
function section(id, title, about, choices = [], home = "main") {
  const body = html("div", { class: "body" });
  const anchor = html("a", { class: "anchor", href: linkTo(id), "aria-label": `Link to ${title}` }, "#");
  const found = html("section", { id, "aria-labelledby": `${id}-title` },
    html("h2", { id: `${id}-title` }, html("span", { class: "title" }, title), anchor), html("p", { class: "about" }, about),
    choices.length ? html("div", { class: "choices" }, ...choices) : null, body);
  document.getElementById(home).append(found);
  return body;
}

// A labelled choice; `options` are [value, text].
function choice(label, options, act) {
  const select = html("select", { on: { change: () => act(select.value) } }, ...options.map(([value, text]) => html("option", { value }, text)));
  return html("label", {}, `${label} `, select);
}

// Runs `draw(width)` now and at every redraw; `draw` gives the children.
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
