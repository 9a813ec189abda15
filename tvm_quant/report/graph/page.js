"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const svg = document.getElementById("graph");
const canvas = document.getElementById("canvas");
const panel = document.getElementById("panel");
const search = document.getElementById("search");
const all = (selector) => [...svg.querySelectorAll(selector)];
const boxes = new Map(all("[data-box]").map((g) => [Number(g.dataset.box), g]));
const pills = new Map(all("[data-pill]").map((g) => [g.dataset.pill, g]));

// Looking around: the view is the part of the drawing that the canvas shows. --------------------

const whole = { width: data.width, height: data.height };
let scale = 1;  // px of the screen a px of the drawing
let view = { x: 0, y: 0 };
svg.removeAttribute("width");
svg.removeAttribute("height");

function show() {
  const [width, height] = [canvas.clientWidth / scale, canvas.clientHeight / scale];
  view.x = Math.min(Math.max(view.x, -width / 2), whole.width - width / 2);  // never out of sight
  view.y = Math.min(Math.max(view.y, -height / 2), whole.height - height / 2);
  svg.setAttribute("viewBox", `${view.x} ${view.y} ${width} ${height}`);
}

const limited = (wanted) => Math.min(Math.max(wanted, 0.02), 6);

function lookAt(x, y, wanted) {  // x, y in the middle
  scale = limited(wanted);
  view = { x: x - canvas.clientWidth / scale / 2, y: y - canvas.clientHeight / scale / 2 };
  show();
}

function zoomAround(factor, x, y) {  // x, y stay where they are on the screen
  const old = scale;
  scale = limited(scale * factor);
  view = { x: x + ((view.x - x) * old) / scale, y: y + ((view.y - y) * old) / scale };
  show();
}

const middle = () =>
  [view.x + canvas.clientWidth / scale / 2, view.y + canvas.clientHeight / scale / 2];

function start() {  // readable, from the top
  const across = canvas.clientWidth / whole.width;
  scale = Math.max(Math.min(across, 1), 0.6);
  view = { x: (whole.width - canvas.clientWidth / scale) / 2, y: 0 };
  show();
}

function fit() {
  const down = canvas.clientHeight / whole.height;
  lookAt(whole.width / 2, whole.height / 2, Math.min(canvas.clientWidth / whole.width, down, 1));
}

function pointer(event) {
  const frame = canvas.getBoundingClientRect();
  return [
    view.x + (event.clientX - frame.left) / scale,
    view.y + (event.clientY - frame.top) / scale,
  ];
}

canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  if (event.ctrlKey || event.metaKey) {
    zoomAround(Math.exp(-event.deltaY / 300), ...pointer(event));
    return;
  }
  const lines = event.deltaMode === 1 ? 20 : 1;
  const [across, down] = event.shiftKey ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
  view.x += (across * lines) / scale;
  view.y += (down * lines) / scale;
  show();
}, { passive: false });

let drag = null;
let moved = false;
canvas.addEventListener("pointerdown", (event) => {
  drag = { x: event.clientX, y: event.clientY };
  moved = false;
});
window.addEventListener("pointermove", (event) => {
  if (!drag) return;
  moved ||= Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > 3;
  if (!moved) return;
  canvas.classList.add("dragging");
  view.x -= (event.clientX - drag.x) / scale;
  view.y -= (event.clientY - drag.y) / scale;
  drag = { x: event.clientX, y: event.clientY };
  show();
});
window.addEventListener("pointerup", () => {
  drag = null;
  canvas.classList.remove("dragging");
});
window.addEventListener("resize", show);

function goTo(element) {
  const frame = element.getBBox();
  const x = frame.x + frame.width / 2 + data.margin;
  const y = frame.y + frame.height / 2 + data.margin;
  lookAt(x, y, Math.max(scale, 0.8));
}

// Marks --------------------------------------------------------------------------------------------

function unmark(...names) {
  for (const name of names) all(`.${name}`).forEach((element) => element.classList.remove(name));
}

function markPill(place) {
  const { name, group, adjacent } = data.pills[place];
  for (const [other, element] of pills) {
    const pill = data.pills[other];
    const together = pill.name === name || (group !== null && pill.group === group);
    if (together) element.classList.add("marked");
    else if (adjacent !== null && pill.adjacent === adjacent) element.classList.add("near");
  }
}

let chosen = null;  // {box} or {pill}
function remark() {
  unmark("marked", "near");
  if (!chosen) return;
  if (chosen.pill !== undefined) {
    markPill(chosen.pill);
    return;
  }
  boxes.get(chosen.box).classList.add("marked");
  all(`[data-from="${chosen.box}"], [data-to="${chosen.box}"]`)
    .forEach((wire) => wire.classList.add("marked"));
}

// Panel --------------------------------------------------------------------------------------------

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function link(text, action) {
  const made = element("button", text, "link");
  made.addEventListener("click", action);
  return made;
}

function table(facts) {
  const made = element("table");
  for (const [name, fact] of facts) {
    const row = made.insertRow();
    row.append(element("td", name));
    const cell = row.insertCell();
    cell.append(fact);
  }
  return made;
}

function list(title, items) {
  if (!items.length) return [];
  const made = element("ul");
  for (const item of items) {
    const line = element("li");
    line.append(...item);
    made.append(line);
  }
  return [element("h3", title), made];
}

const toBox = (index) =>
  link(data.boxes[index].title, () => { choose({ box: index }); goTo(boxes.get(index)); });
const toPill = (place) =>
  link(place, () => { choose({ pill: place }); goTo(pills.get(place)); });
const named = (place) => [toPill(place), ` ${data.pills[place].code}`];

function boxPanel(index) {
  const box = data.boxes[index];
  const facts = [["operator", box.ops.join(" + ") || box.state], ["shape", box.shape]];
  if (box.sqnr) facts.push(["SQNR", box.sqnr]);
  const parts = [element("h2", box.title), table(facts.filter(([, fact]) => fact))];
  if (box.reasons.length) {
    const title = box.state === "float" ? "Stays in float" : "Partly in float";
    parts.push(...list(title, box.reasons.map((reason) => [element("span", reason, "reason")])));
  }
  for (const place of box.pills) {
    parts.push(element("h3", ""));
    parts.at(-1).append(...named(place));
    parts.push(table(Object.entries(data.pills[place].facts)));
  }
  const from = data.wires.filter((wire) => wire.target === index).map((wire) => [toBox(wire.source)]);
  const to = data.wires.filter((wire) => wire.source === index).map((wire) => [toBox(wire.target)]);
  return [...parts, ...list("Reads", from), ...list("Read by", to)];
}

function pillPanel(place) {
  const pill = data.pills[place];
  const others = Object.keys(data.pills).filter((other) => other !== place);
  const that = (test) => others.filter((other) => test(data.pills[other])).map(named);
  const shared = that((other) => other.name === pill.name);
  const group = that((other) => pill.group !== null && other.group === pill.group);
  const near = that((other) => pill.adjacent !== null && other.adjacent === pill.adjacent);
  return [
    element("h2", `${place}  ${pill.code}`),
    table([["node", toBox(pill.box)], ...Object.entries(pill.facts)]),
    ...list("The same quantizer at", shared),
    ...list(`One scale with (group ${pill.group})`, group),
    ...list("Changes width together with", near),
  ];
}

function swatches() {
  const parts = [element("h3", "Legend")];
  for (const [text, fill, line, dashes] of data.legend) {
    const swatch = element("span", undefined, "swatch");
    swatch.style.background = fill;
    swatch.style.borderColor = line;
    if (dashes) swatch.style.borderStyle = "dashed";
    const row = element("div");
    row.append(swatch, text);
    parts.push(row);
  }
  parts.push(...data.notes.map((note) => element("div", note, "quiet note")));
  if (data.scale) {
    const bar = element("div", undefined, "scale");
    bar.style.background = `linear-gradient(to right, ${data.scale.colours.join(", ")})`;
    const ends = element("div", undefined, "ends");
    ends.append(...data.scale.ends.map((text) => element("span", text)));
    parts.push(element("h3", "SQNR of a layer"), bar, ends);
  }
  return parts;
}

function overview() {
  const indexed = data.boxes.map((box, index) => ({ ...box, index }));
  const worst = indexed.filter((box) => box.sqnr_db !== null)
    .sort((a, b) => a.sqnr_db - b.sqnr_db).slice(0, 10);
  const floats = indexed.filter((box) => box.reasons.length);
  const groups = new Map();
  for (const [place, pill] of Object.entries(data.pills)) {
    if (pill.group !== null && !groups.has(pill.group)) groups.set(pill.group, place);
  }
  return [
    ...swatches(),
    ...list("Noisiest layers", worst.map((box) => [toBox(box.index), ` ${box.sqnr}`])),
    ...list("In float", floats.map((box) =>
      [toBox(box.index), element("div", box.reasons.join("; "), "reason")])),
    ...list("Quantizers with one scale", [...groups].map(([group, place]) =>
      [`g${group}: `, toPill(place)])),
    ...(data.facts.length ? [element("h3", "About"), table(data.facts)] : []),
    element("h3", "Moving about"),
    element("div", "Wheel or drag to move, Ctrl and wheel to zoom. Click a node or a quantizer " +
      "for its numbers and groups. / finds, Enter goes on, Esc comes back here.", "quiet"),
  ];
}

function choose(choice) {
  chosen = choice;
  remark();
  const parts = !chosen ? overview()
    : chosen.pill !== undefined ? pillPanel(chosen.pill) : boxPanel(chosen.box);
  panel.replaceChildren(...parts);
  panel.scrollTop = 0;
}

svg.addEventListener("click", (event) => {
  if (moved) return;
  const pill = event.target.closest("[data-pill]");
  const box = event.target.closest("[data-box]");
  if (pill) choose({ pill: pill.dataset.pill });
  else if (box) choose({ box: Number(box.dataset.box) });
  else choose(null);
});
svg.addEventListener("mouseover", (event) => {
  const pill = event.target.closest("[data-pill]");
  remark();
  if (pill) markPill(pill.dataset.pill);
});

// Search -------------------------------------------------------------------------------------------

let hits = [];
let hit = -1;
function find() {
  unmark("hit");
  const wanted = search.value.trim().toLowerCase();
  hits = wanted ? [...boxes.keys()].filter((index) =>
    data.boxes[index].title.toLowerCase().includes(wanted)) : [];
  hits.forEach((index) => boxes.get(index).classList.add("hit"));
  hit = -1;
  document.getElementById("found").textContent = wanted ? `${hits.length} found` : "";
}

function nextHit(step) {
  if (!hits.length) return;
  hit = (hit + step + hits.length) % hits.length;
  document.getElementById("found").textContent = `${hit + 1} of ${hits.length}`;
  choose({ box: hits[hit] });
  goTo(boxes.get(hits[hit]));
}

search.addEventListener("input", () => { find(); nextHit(1); });
search.addEventListener("keydown", (event) => {
  if (event.key === "Enter") nextHit(event.shiftKey ? -1 : 1);
});

const zoomBy = (factor) => zoomAround(factor, ...middle());
function home() {
  search.value = "";
  find();
  choose(null);
}

document.getElementById("in").addEventListener("click", () => zoomBy(1.3));
document.getElementById("out").addEventListener("click", () => zoomBy(1 / 1.3));
document.getElementById("fit").addEventListener("click", fit);
document.getElementById("home").addEventListener("click", home);
window.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { search.blur(); home(); }
  if (event.target === search || event.ctrlKey || event.metaKey) return;
  const keys = { "/": () => search.focus(), "+": () => zoomBy(1.3), "-": () => zoomBy(1 / 1.3), 0: fit };
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});

start();
choose(null);
const asked = decodeURIComponent(location.hash.slice(1));  // page.html#conv1 or #conv1:0
if (pills.has(asked)) {
  choose({ pill: asked });
  goTo(pills.get(asked));
} else if (asked) {
  search.value = asked;
  find();
  nextHit(1);
}
