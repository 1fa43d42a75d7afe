// The dashboard's own script: live updates, keys, questions before what cannot be undone, charts.
"use strict";

// ---- live: the server says that something has changed, the page fetches itself and is morphed

const body = document.body;
const pauseButton = document.getElementById("pause");
let paused = sessionStorage.getItem("paused") === "yes";
let missed = false;

function word() {
  if (!pauseButton) return;
  pauseButton.setAttribute("aria-pressed", String(paused));
  const lost = body.dataset.link === "lost";
  document.getElementById("live-word").textContent = paused ? "paused" : lost ? "reconnecting" : "live";
}

function changed() {
  if (paused || document.hidden) { missed = true; return; }
  missed = false;
  body.dispatchEvent(new CustomEvent("live"));
}

function catchUp() { if (missed && !paused && !document.hidden) changed(); }

function pause() {
  paused = !paused;
  sessionStorage.setItem("paused", paused ? "yes" : "no");
  word();
  catchUp();
}

if (body.dataset.live && window.EventSource) {
  const stream = new EventSource(body.dataset.live);
  let first = true;
  stream.onopen = () => { body.dataset.link = "there"; word(); if (!first) changed(); first = false; };
  stream.onerror = () => { body.dataset.link = "lost"; word(); };
  stream.onmessage = changed;
  document.addEventListener("visibilitychange", catchUp);
  addEventListener("pagehide", () => stream.close());
}
if (pauseButton) { pauseButton.addEventListener("click", pause); word(); }

// ---- actions: what cannot be undone asks first, what concerns many says how many

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
  for (const place of document.querySelectorAll("[data-value]")) {
    place.textContent = JSON.stringify(found[place.dataset.value], null, 2);
  }
});

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (form.dataset.ask && !confirm(form.dataset.ask)) event.preventDefault();
  if (form.dataset.preview && !form.dataset.sure) {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(form));
    const answer = await post(form.action, { ...given, preview: "1" });
    const found = await answer.json();
    if (!answer.ok) { alert(found.error); return; }
    if (confirm(`${form.dataset.preview}: ${found.done} jobs. Go on?`)) {
      form.dataset.sure = "yes";
      form.submit();
    }
  }
});

// ---- keys

let before = "";

function rows() { return [...document.querySelectorAll("tbody tr[data-href]")]; }

function step(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.classList.contains("here"));
  all.forEach((row) => row.classList.remove("here"));
  const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
  next.classList.add("here");
  next.scrollIntoView({ block: "nearest" });
  next.querySelector("a")?.focus();
}

function press(action) { document.querySelector(`button[data-action="${action}"]`)?.click(); }

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea, dialog")) {
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
    j: () => step(1), k: () => step(-1), p: pause, r: () => press("retry"), c: () => press("cancel"),
  }[key];
  if (does) { event.preventDefault(); does(); }
});

// ---- charts: an element that draws what its attribute says, and again when that changes

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

class Chart extends HTMLElement {
  static observedAttributes = ["data"];

  connectedCallback() {
    if (!this.shadowRoot) {
      const style = document.createElement("link");
      style.rel = "stylesheet";
      style.href = document.querySelector('link[href*="uplot"]').href;
      this.place = document.createElement("div");
      this.attachShadow({ mode: "open" }).append(style, this.place);
      new ResizeObserver(() => this.size()).observe(this);
    }
    this.draw();
  }

  attributeChangedCallback() { if (this.shadowRoot) this.draw(); }

  size() { this.plot?.setSize({ width: this.clientWidth, height: 200 }); }

  draw() {
    const lines = JSON.parse(this.getAttribute("data"));
    const times = lines.map((line) => Date.parse(line.at) / 1000);
    const counts = this.getAttribute("kind") === "counts";
    const named = counts
      ? [["ended", "--accent"], ["failed", "--bad"]]
      : [["p50", "--good"], ["p95", "--wait"], ["p99", "--bad"]];
    const data = [times, ...named.map(([name]) => lines.map((line) => line[name]))];
    if (this.plot) { this.plot.setData(data); return; }
    const clock = (at) => new Date(1000 * at).toLocaleString([], times.at(-1) - times[0] > 90000
      ? { month: "short", day: "numeric", hour: "2-digit", hourCycle: "h23" }
      : { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
    const axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
    this.plot = new uPlot({
      width: this.clientWidth || 400,
      height: 200,
      cursor: { points: { size: 6 } },
      legend: { live: true },
      scales: counts ? { y: { range: (_, low, high) => [0, Math.max(high, 1)] } } : { y: { distr: 3 } },
      axes: [{ ...axis, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 60 }],
      series: [{ label: "time", value: (_, at) => (at == null ? "–" : clock(at)) }, ...named.map(([name, tone]) => ({
        label: name, stroke: color(tone), width: 1.5, points: { show: !counts, size: 4 },
        fill: counts && name === "ended" ? `color-mix(in srgb, ${color(tone)} 14%, transparent)` : undefined,
      }))],
    }, data, this.place);
  }
}
customElements.define("tow-chart", Chart);
