// The dashboard's own script: live updates, keys, questions before what cannot be undone, charts.
"use strict";

const every = (selector) => [...document.querySelectorAll(selector)];

// ---- live: the server says that something has changed, the page fetches itself and is morphed

const body = document.body;
const pauseButton = document.getElementById("pause");
let paused = sessionStorage.getItem("paused") === "yes";
let missed = false;
let pressed = false;  // a button that is taken away between press and release is never clicked
let leaving = false;  // a form was sent, and its answer comes instead

function word() {
  if (!pauseButton) return;
  pauseButton.setAttribute("aria-pressed", String(paused));
  const lost = body.dataset.link === "lost";
  document.getElementById("live-word").textContent = paused ? "paused" : lost ? "reconnecting" : "live";
}

function changed() {
  if (paused || leaving || document.hidden) { missed = true; return; }
  missed = false;
  body.dispatchEvent(new CustomEvent("live"));
}

function catchUp() { if (missed && !paused && !leaving && !document.hidden) changed(); }

function pause() {
  paused = !paused;
  sessionStorage.setItem("paused", paused ? "yes" : "no");
  word();
  catchUp();
}

// An answer that is no page of ours, a proxy's say, is not shown; a refusal is.
document.addEventListener("htmx:before:swap", (event) => {
  if (pressed || paused) { missed = true; event.preventDefault(); return; }
  const { text, response } = event.detail.ctx;
  if (text?.includes('id="content"')) return;
  event.preventDefault();
  const refused = [401, 403].includes(response?.raw?.status ?? response?.status);
  if (refused) document.getElementById("content").textContent = "You may not see this any more.";
});

addEventListener("pointerdown", () => { pressed = true; }, true);
for (const end of ["pointerup", "pointercancel", "dragend"]) {
  addEventListener(end, () => { pressed = false; setTimeout(catchUp); }, true);  // after the click
}

function heard(news) {
  if (news === "changed") { changed(); return; }
  const before = body.dataset.link;
  body.dataset.link = news;
  word();
  if (before && [before, news].includes("lost")) changed();  // while it is lost, the page may say what is wrong
}

// "seen", "hidden" or "gone": a page that nobody sees listens to nothing.
function listener() {
  if (!window.SharedWorker) {
    const watch = listen(body.dataset.live, heard);
    return (how) => watch(how === "seen");
  }
  const { port } = new SharedWorker(document.querySelector('script[src*="/stream.js"]').src);
  port.onmessage = ({ data }) => heard(data);
  return (how) => port.postMessage(how);
}

if (body.dataset.live && window.EventSource) {
  const be = listener();
  const seen = () => be(document.hidden ? "hidden" : "seen");
  seen();
  document.addEventListener("visibilitychange", () => { seen(); catchUp(); });
  addEventListener("pagehide", () => be("gone"));
  addEventListener("pageshow", ({ persisted }) => { if (persisted) { leaving = false; seen(); changed(); } });
}
if (pauseButton) { pauseButton.addEventListener("click", pause); word(); }

// ---- actions: what cannot be undone asks first

const post = (path, given) => fetch(path, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify(given),
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-reveal]");
  if (!button || !confirm("Show what is marked as secret? It is noted who did.")) return;
  const answer = await post(`${body.dataset.root}/do/reveal`, { id: button.dataset.reveal });
  const found = await answer.json();
  if (!answer.ok) { alert(found.error); return; }
  if (!paused) pause();  // or the next change would hide it again
  for (const place of every("[data-value]")) {
    const value = found[place.dataset.value];
    const index = place.dataset.index;
    const own = index && value instanceof Object ? Object.values(value)[index] : value;
    place.textContent = shown(value == found.errors ? own : JSON.stringify(own, null, 2) ?? "");
  }
});

// Text as the server shows it: what would move or turn other text is escaped.
const shown = (text) => text.replace(
  /(?![\n\u200c\u200d])[\p{C}\p{Zl}\p{Zp}]/gu,
  (each) => `\\u${each.codePointAt().toString(16).padStart(4, "0")}`,
);

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const place = document.getElementById(button.dataset.copy);
  getSelection().selectAllChildren(place);
  await navigator.clipboard?.writeText(place.textContent);  // else it is selected, ready for Ctrl-C
  button.textContent = navigator.clipboard ? "copied" : "selected";
});

// Without script such a form leads to a page that asks, or wants a tick: in a page fetched anew a control that nobody
// sees.
document.addEventListener("click", (event) => {
  const form = event.target.closest("[data-ask]");
  if (form) form.noValidate = true;
}, true);

document.addEventListener("submit", (event) => {
  const form = event.target;
  const { ask, does } = form.dataset;
  if (ask && !confirm(ask)) { event.preventDefault(); return; }
  if (ask) {
    form.setAttribute("method", "post");
    form.setAttribute("action", does);
  }
  if (form.getAttribute("method") === "dialog") return;
  leaving = true;
  setTimeout(() => { leaving = false; catchUp(); }, 10_000);  // it was stopped
});

// ---- selecting and marking rows: kept here as well, since a page that is fetched anew knows of neither

const picked = new Set();
let marked;  // the address of the row that is
const rows = () => every("tbody tr[data-href]");
const isMarked = (row) => row.dataset.href === marked;
const boxes = () => every('#many input[name="pick"]');

function showPicked() {
  for (const row of rows()) row.classList.toggle("here", isMarked(row));
  const here = boxes();
  const ids = new Set(here.map((box) => box.value));
  for (const id of [...picked]) if (!ids.has(id)) picked.delete(id);  // it is not on the page any more
  for (const box of here) {
    box.checked = picked.has(box.value);
    box.closest("tr").classList.toggle("picked", box.checked);
  }
  const page = document.querySelector("[data-pick-page]");
  if (!page) return;
  page.hidden = false;
  page.checked = here.length > 0 && picked.size === here.length;
  page.indeterminate = picked.size > 0 && !page.checked;
  document.querySelector("[data-picked]").textContent = picked.size ? `${picked.size} selected` : "what is selected";
}

function pick(box, yes) {
  picked[yes ? "add" : "delete"](box.value);
}

document.addEventListener("change", ({ target }) => {
  if (target.name === "pick") pick(target, target.checked);
  else if ("pickPage" in target.dataset) boxes().forEach((box) => pick(box, target.checked));
  else return;
  showPicked();
});

function pickRow() {
  const box = document.querySelector('tr.here input[name="pick"]');
  if (!box) return;
  pick(box, !picked.has(box.value));
  showPicked();
}

document.addEventListener("htmx:after:swap", showPicked);
for (const box of boxes()) if (box.checked) picked.add(box.value);  // those that the browser kept
showPicked();

// ---- keys

let before = "";

function step(by) {
  const all = rows();
  if (!all.length) return;
  const next = all[Math.min(Math.max(all.findIndex(isMarked) + by, 0), all.length - 1)];
  marked = next.dataset.href;
  showPicked();
  next.scrollIntoView({ block: "nearest" });
  next.querySelector("a")?.focus();
}

// On the page of a job its own button, on a list that of what is selected, or else of the row that is marked;
// all ask first, or can be undone.
function press(action) {
  const button = document.querySelector(`button[data-action="${action}"], #many button[value="${action}"]`);
  if (!button) return;
  if (button.form.id === "many" && !picked.size && !button.form.elements.all?.checked) pickRow();
  button.click();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input:not([type=checkbox]), select, textarea, dialog")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const key = event.key;
  if (before === "g") {
    before = "";
    document.querySelector(`nav a[data-key="${CSS.escape(key)}"]`)?.click();
    return;
  }
  before = key === "g" ? "g" : "";
  const does = {
    "/": () => document.getElementById("q").focus(),
    "?": () => document.getElementById("keys").showModal(),
    j: () => step(1), k: () => step(-1), x: pickRow, p: pause,
    r: () => press("retry"), c: () => press("cancel"), d: () => press("delete"),
  }[key];
  if (does) { event.preventDefault(); does(); }
});

// ---- an element that draws what its attribute says, and again when that changes. It draws in a
// shadow root, which morphing leaves alone, with a style sheet of its own.

class Drawing extends HTMLElement {
  static observedAttributes = ["data"];

  connectedCallback() {
    if (!this.shadowRoot) {
      const style = document.createElement("link");
      style.rel = "stylesheet";
      style.href = document.querySelector(`link[href*="${this.constructor.style}"]`).href;
      this.place = document.createElement("div");
      this.attachShadow({ mode: "open" }).append(style, this.place);
      new ResizeObserver(() => this.size()).observe(this);
    }
    this.draw();
  }

  attributeChangedCallback() { if (this.shadowRoot) this.draw(); }

  size() {}
}

// ---- charts

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const TONES = { ended: "--accent", failed: "--bad", p50: "--accent", p95: "--quiet" };

// A number with few digits and its unit.
const brief = (value) => String(Number(value.toPrecision(3)));
const span = (seconds) => (seconds < 1 ? `${brief(1000 * seconds)} ms` : `${brief(seconds)} s`);

// Of a chart: its scale, how a value is read, whether the ground below is filled, where the grid has lines.
const from0 = (least) => ({ range: (_, low, high) => [0, Math.max(high, least)] });
const isPower = (value) => Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-6;  // of ten
const KINDS = {
  jobs: { scale: from0(1), shown: brief, fill: true },
  share: { scale: from0(0.1), shown: (share) => `${brief(100 * share)} %`, fill: true },
  time: { scale: { distr: 3 }, shown: span, fill: false, lines: isPower },
};

class Chart extends Drawing {
  static style = "uplot";

  size() { this.plot?.setSize({ width: this.clientWidth, height: 200 }); }

  again() { this.plot?.destroy(); this.plot = null; this.draw(); }

  draw() {
    const { at, ...lines } = JSON.parse(this.getAttribute("data"));
    const times = at.map((time) => Date.parse(time) / 1000);
    const { scale, shown, fill, lines: grid = () => true } = KINDS[this.getAttribute("kind")];
    const names = Object.keys(lines);
    const data = [times, ...names.map((name) => lines[name])];
    if (this.plot) { this.plot.setData(data); return; }
    const clock = (at) => new Date(1000 * at).toLocaleString([], times.at(-1) - times[0] > 90000
      ? { month: "short", day: "numeric", hour: "2-digit", hourCycle: "h23" }
      : { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
    const axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
    const read = (_, value) => (value == null ? "–" : shown(value));
    this.plot = new uPlot({
      width: this.clientWidth || 400,
      height: 200,
      cursor: { points: { size: 6 } },
      scales: { y: scale },
      axes: [
        { ...axis, size: 30, values: (_, ticks) => ticks.map(clock) },
        { ...axis, size: 60, grid: { ...axis.grid, filter: (_, ticks) => ticks.map((tick) => (grid(tick) ? tick : null)) }, values: (_, ticks) => ticks.map((tick) => (tick == null ? "" : shown(tick))) },
      ],
      series: [{ label: "time", value: (_, at) => (at == null ? "–" : clock(at)) }, ...names.map((name) => ({
        label: name, stroke: color(TONES[name]), width: 1.5, value: read, points: { show: !fill, size: 4 },
        fill: fill ? `color-mix(in srgb, ${color(TONES[name])} 14%, transparent)` : undefined,
      }))],
    }, data, this.place);
  }
}
customElements.define("tow-chart", Chart);

// A chart takes its colours when it is drawn.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const chart of every("tow-chart")) chart.again();
});

// ---- the graph, laid out anew with each change

const SVG = "http://www.w3.org/2000/svg";

function drawn(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = shown(text);
  return element;
}

class Graph extends Drawing {
  static style = "towline.css";

  // From the right side of one node to the left side of the other, in curves past what lies between.
  way(laid, from, to) {
    const [start, end] = [laid.node(from), laid.node(to)];
    const between = laid.edge(from, to).points.slice(1, -1);
    const stops = [...(between.length > 1 ? between : []), { x: end.x - 95, y: end.y }];
    let [x, y, d] = [start.x + 95, start.y, `M${start.x + 95},${start.y}`];
    for (const stop of stops) {
      const middle = (x + stop.x) / 2;
      d += `C${middle},${y} ${middle},${stop.y} ${stop.x},${stop.y}`;
      [x, y] = [stop.x, stop.y];
    }
    return d;
  }

  draw() {
    const { nodes, edges } = JSON.parse(this.getAttribute("data"));
    const laid = new dagre.graphlib.Graph().setGraph({ rankdir: "LR", nodesep: 14, ranksep: 50 });
    laid.setDefaultEdgeLabel(() => ({}));
    for (const node of nodes) laid.setNode(node.id, { width: 190, height: 42 });
    for (const [from, to] of edges) laid.setEdge(from, to);
    dagre.layout(laid);
    const { width, height } = laid.graph();
    const picture = drawn("svg", { width: width + 20, height: height + 20, class: "graph" });
    const all = drawn("g", { transform: "translate(10 10)" });
    for (const [from, to] of edges) all.append(drawn("path", { d: this.way(laid, from, to), class: "edge" }));
    for (const node of nodes) {
      const { x, y } = laid.node(node.id);
      const link = drawn("a", { href: `${this.getAttribute("root")}/chains/${node.id}` });
      const name = node.tasks > 1 ? `${node.tasks} tasks` : node.task;
      const here = String(node.id) === this.getAttribute("here") ? " here" : "";
      link.append(
        drawn("rect", { x: x - 95, y: y - 21, width: 190, height: 42, rx: 6, class: `node ${node.state}${here}` }),
        drawn("text", { x: x - 85, y: y - 3 }, name.length > 24 ? `${name.slice(0, 23)}…` : name),
        drawn("text", { x: x - 85, y: y + 13, class: "small" }, `${node.id} ${node.state}${node.chains > 1 ? ` × ${node.chains}` : ""}`),
        drawn("title", {}, `chain ${node.id}: ${name}, ${node.state}`),
      );
      all.append(link);
    }
    picture.append(all);
    this.place.replaceChildren(picture);
  }
}
customElements.define("tow-graph", Graph);
