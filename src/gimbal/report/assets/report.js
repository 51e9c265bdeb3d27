"use strict";
// Everything a model wrote reaches the page through textContent alone.
const run = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const make = (tag, className, text) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};

document.querySelector("h1").textContent = run.name;
for (const line of run.words) $("words").append(make("p", "", line));
document.querySelector("#recipe pre").textContent = run.recipe || "recipe.yaml was not written by this run";

// Curves: one chart a group, the group being what stands before the last slash.
const groups = new Map();
for (const name of Object.keys(run.metrics)) {
  const cut = name.lastIndexOf("/");
  const group = cut < 0 ? name : name.slice(0, cut);
  if (!groups.has(group)) groups.set(group, []);
  groups.get(group).push(name);
}
const first = ["pass_rate", "reward", "eval", "loss", "mismatch", "staleness", "length", "entropy", "kl", "clip_ratio", "grad_norm"];
const rank = (group) => (first.indexOf(group) + first.length + 1) % (first.length + 1);
const order = [...groups.keys()].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
const colours = ["#2f6fbf", "#d97a1d", "#3f9b57", "#b3423f", "#7f5fb5", "#8a6d4f", "#c45b9b", "#6f7780", "#a3a338", "#2aa4b3"];
const smoothed = (values, weight) => {
  let mean = null;
  return values.map((value) => {
    if (value === null) return null;
    mean = mean === null ? value : weight * mean + (1 - weight) * value;
    return mean;
  });
};
let charts = [];
function draw() {
  for (const chart of charts) chart.destroy();
  charts = [];
  $("charts").replaceChildren();
  const weight = Number($("smooth").value), log = $("log").checked;
  const ink = getComputedStyle(document.body).color, line = getComputedStyle(document.documentElement).getPropertyValue("--line");
  const short = (_, ticks) => ticks.map((v) => (v === null ? "" : Number(v.toPrecision(3)).toString()));
  const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  for (const group of order) {
    const names = groups.get(group);
    const card = $("charts").appendChild(make("div", "chart"));
    card.append(make("h3", "", group));
    // A logarithm has no place for 0 and below.
    const series = names.map((name) => smoothed(run.metrics[name], weight).map((v) => (log && !(v > 0) ? null : v)));
    const positive = series.some((values) => values.some((v) => v !== null));
    charts.push(new uPlot({
      width: card.clientWidth - 26, height: 190,
      scales: { x: { time: false }, y: { distr: log && positive ? 3 : 1 } },
      axes: [axis, { ...axis, size: 64, values: short }],
      series: [{ label: "step" }, ...names.map((name, i) => ({
        label: name === group ? name : name.slice(group.length + 1), stroke: colours[i % colours.length], width: 1.6,
        points: { show: run.steps.length < 3 }, value: (_, v) => (v === null || v === undefined ? "–" : Number(v.toPrecision(4)).toString()),
      }))],
    }, [run.steps, ...series], card));
  }
}
if (run.steps.length) draw(); else $("charts").append(make("p", "", "No step has been recorded yet."));
$("smooth").addEventListener("input", draw);
$("log").addEventListener("change", draw);
let resizing = 0;
addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(draw, 150); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

// Rollouts: every token coloured by one of its numbers.
const age = (r) => { const newest = Math.max(...r.version); return r.version.map((v) => newest - v); };
const quantities = {
  "log-prob": { of: (r) => r.behavior, low: -3, high: 0 },
  "discrepancy": { of: (r) => r.proximal && r.proximal.map((p, i) => p - r.behavior[i]), low: -0.5, high: 0.5 },
  "versions behind the newest": { of: age, low: 3, high: 0 },
  "entropy": { of: (r) => r.entropy, low: 2, high: 0 },
  "advantage": { of: (r) => r.advantage, low: -2, high: 2 },
};
const shade = (value, low, high) => {
  const t = Math.min(1, Math.max(0, (value - low) / (high - low)));
  return `hsl(${Math.round(t * 130)} 65% ${Math.round(72 + 14 * Math.abs(t - 0.5))}%)`;
};
for (const name of Object.keys(quantities)) $("colour").append(make("option", "", name));
for (const step of [...new Set(run.rollouts.map((r) => r.step))].reverse()) $("step").append(make("option", "", step));
const number = (x) => (x === null || x === undefined ? "–" : Number(x.toPrecision(4)).toString());
function describe(r, i) {
  const parts = Object.entries(quantities).map(([name, q]) => [name, q.of(r)]).filter(([, v]) => v);
  $("token").textContent = `${JSON.stringify(r.pieces[i])} (decision ${i}): ` + parts.map(([n, v]) => `${n} ${number(v[i])}`).join(", ");
}
function card(r) {
  const node = make("article", "rollout"), text = make("div", "text"), q = quantities[$("colour").value], values = q.of(r);
  node.append(make("span", "badge", r.score === null ? r.stop : `${number(r.score)} · ${r.stop}`), make("div", "prompt", r.prompt || r.task), text);
  r.pieces.forEach((piece, i) => {
    const token = make("span", "", piece || "·");
    token.tabIndex = 0;
    token.style.background = values ? shade(values[i], q.low, q.high) : "#ddd";
    token.addEventListener("mouseenter", () => describe(r, i));
    token.addEventListener("focus", () => describe(r, i));
    text.append(token);
  });
  return node;
}
function list() {
  const words = $("search").value.toLowerCase(), wanted = $("score").value;
  const found = run.rollouts.filter((r) => String(r.step) === $("step").value
    && (!words || (r.prompt + r.text).toLowerCase().includes(words))
    && (!wanted || (r.score >= 1) === (wanted === "right")));
  $("list").replaceChildren(...found.map(card));
  $("shown").textContent = run.rollouts.length ? `${found.length} shown` : "none recorded";
}
for (const id of ["step", "colour", "search", "score"]) $(id).addEventListener("input", list);
list();
