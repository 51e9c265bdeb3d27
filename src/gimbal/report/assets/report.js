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
const number = (x, digits = 4) => {
  if (x === null || x === undefined) return "–";
  if (Number.isInteger(x)) return x.toString();
  return Math.abs(x) < 1e-3 ? x.toExponential(digits - 1).replace(/\.?0+e/, "e") : Number(x.toPrecision(digits)).toString();
};

// In short.
document.querySelector("h1").textContent = run.name;
if (run.exam.length) {
  const table = $("words").appendChild(make("table")), row = (tag, cells) => {
    const line = table.appendChild(make("tr"));
    cells.forEach((cell, i) => line.append(make(i ? tag : "th", "", cell)));
  };
  row("th", ["held-out exam", "before", "after", "change"]);
  for (const [name, before, after] of run.exam) {
    const change = before === null || after === null ? null : after - before;
    row("td", [name, number(before, 3), number(after, 3), (change > 0 ? "+" : "") + number(change, 3)]);
  }
}
for (const line of run.words) $("words").append(make("p", "", line));
document.querySelector("#recipe pre").textContent = run.recipe || "This run wrote no recipe.yaml.";

// Curves. A metric is drawn in the first chart that claims it; what none claims is drawn with others of its prefix.
const claims = [
  ["Solved", /^(pass_rate|eval\/(pass@.*|greedy))$/, "Share of sampled rollouts with a score of at least 1, and the held-out exam where it was sat on the way."],
  ["Score", /^(reward\/mean|eval\/(greedy_)?score)$/, "Mean score of the sampled rollouts."],
  ["Rewards by name", /^reward\/.*\/mean$/, "Each reward before weighting."],
  ["Spread of scores", /^reward\/std$/, "Standard deviation over the sampled rollouts."],
  ["No signal", /^(reward\/zero_std_frac|length\/truncated_frac)$/, "Share of groups whose scores are all equal; share of rollouts cut off at the length limit."],
  ["Length", /^length\/|^eval\/length$/, "Decisions of a rollout."],
  ["Discrepancy", /^mismatch\/prob_diff/, "Mean |p − p′| between sampler and trainer on the decisions trained on: in all, and by whether newer weights exist."],
  ["Effective sample share", /^mismatch\/ess_/, "(Σw)² / (n Σw²) of w = exp(proximal − behavior): 1 where sampler and trainer agree."],
  ["Tails of the ratio", /^mismatch\/(k3|outside_frac)$/, "k3 estimates KL(sampler ‖ trainer); share of w outside [0.5, 2]."],
  ["Largest log-ratio", /^mismatch\//, "Largest |proximal − behavior| of a decision."],
  ["Age", /^staleness\/(mean|p95|max)$/, "Learner's version at the gradient minus the version that drew the decision."],
  ["Share of decisions by age", /^staleness\/share\//, ""],
  ["Entropy", /^entropy\//, "Of the distributions sampled from, or of the policy in training."],
  ["KL", /^kl\//, "k3 of the policy in training to its anchor (old) or to the reference (ref)."],
  ["Clipped", /^clip_ratio\//, "Share of decisions beyond each edge of the trust region."],
  ["Advantage", /^advantage\//, "Over the decisions trained on, after shaping."],
  ["Loss", /^loss$/, "Of the objective. Its value says little: near 0 is normal."],
  ["Gradient norm", /^grad_norm$/, "Before clipping."],
  ["Coefficients under control", /^control\//, ""],
  ["Delivery: slope", /^sync\/slope$/, "How far the sampler followed the trainer's movement: 1 delivered, 0 lost."],
  ["Delivery: gap", /^sync\/gap$/, "Mean |log-prob gap| between sampler and trainer on the canary."],
  ["Dropped groups", /^drops\//, "So far, by reason."],
  ["Delivery: versions unproved", /^sync\/unproved_versions$/, "Since the trainer's movement last exceeded the sampler's numerical noise."],
  ["Seconds of a step", /^time\//, ""],
  ["Speed", /^perf\//, "Decisions a second, training included."],
  ["Decisions generated", /^tokens$/, "So far."],
  ["Learning rate", /^lr$/, ""],
];
const charts = new Map(claims.map(([title, , caption]) => [title, { caption, names: [] }]));
for (const name of Object.keys(run.metrics)) {
  const claim = claims.find(([, pattern]) => pattern.test(name));
  const title = claim ? claim[0] : name.includes("/") ? name.slice(0, name.lastIndexOf("/")) : name;
  if (!charts.has(title)) charts.set(title, { caption: "", names: [] });
  charts.get(title).names.push(name);
}
const colours = ["#2f7fd0", "#d97a1d", "#3f9b57", "#c0504d", "#8a6bc5", "#9a7b5a", "#c45b9b", "#7b848d", "#a3a338", "#2aa4b3"];
const counted = /^(staleness\/share|drops)\//; // what a row does not name is 0 here, and unknown elsewhere
const around = (v) => (v === 0 ? [0, 1] : [v - Math.abs(v) / 10, v + Math.abs(v) / 10]);
const smoothed = (values, weight) => {
  let mean = null;
  return values.map((value) => {
    if (value === null) return null;
    mean = mean === null ? value : weight * mean + (1 - weight) * value;
    return mean;
  });
};
let drawn = [];
function draw() {
  for (const chart of drawn) chart.destroy();
  drawn = [];
  $("charts").replaceChildren();
  const weight = Number($("smooth").value), log = $("log").checked;
  const ink = getComputedStyle(document.body).color, line = getComputedStyle(document.documentElement).getPropertyValue("--line");
  const ticks = (_, values) => values.map((v) => (v === null ? "" : number(v, 3)));
  const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  for (const [title, { caption, names }] of charts) {
    if (!names.length) continue;
    const card = $("charts").appendChild(make("div", "chart"));
    card.append(make("h3", "", title), make("p", "", caption));
    // A logarithm has no place for 0 and below.
    const series = names.map((name) => smoothed(run.metrics[name].map((v) => (v === null && counted.test(name) ? 0 : v)), weight)
      .map((v) => (log && !(v > 0) ? null : v)));
    const known = series.flat().filter((v) => v !== null), flat = known.every((v) => v === known[0]);
    const last = series.map((values) => values.at(-1));
    card.setAttribute("role", "img");
    card.setAttribute("aria-label", `${title}. Last step: ` + names.map((name, i) => `${name} ${number(last[i])}`).join(", "));
    drawn.push(new uPlot({
      width: card.clientWidth - 26, height: 190,
      cursor: { sync: { key: "run" } },
      scales: { x: { time: false }, y: log && known.length ? { distr: 3 } : flat ? { range: around(known[0] || 0) } : {} },
      axes: [{ ...axis, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000] }, { ...axis, size: 64, values: ticks }],
      series: [{ label: "step", value: (_, v) => number(v ?? run.steps.at(-1)) }, ...names.map((name, i) => ({
        label: name, stroke: colours[i % colours.length], width: 1.6, spanGaps: true,
        points: { show: series[i].filter((v) => v !== null).length < 12 },
        value: (_, v, __, at) => number(at === null ? last[i] : v),
      }))],
    }, [run.steps, ...series], card));
  }
}
if (run.steps.length) draw(); else $("charts").append(make("p", "", "No step has been recorded yet."));
const redraw = () => { if (run.steps.length) draw(); };
$("smooth").addEventListener("input", redraw);
$("log").addEventListener("change", redraw);
new ResizeObserver(() => {
  for (const chart of drawn) chart.setSize({ width: chart.root.parentNode.clientWidth - 26, height: 190 });
}).observe($("charts"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

// Rollouts: every decision coloured by one of its numbers. Step s took its gradient at version s - 1.
const quantities = {
  "log-prob": (r) => r.behavior,
  "discrepancy": (r) => r.proximal && r.behavior && r.proximal.map((p, i) => p - r.behavior[i]),
  "age": (r) => r.version.map((v) => r.step - 1 - v),
  "entropy": (r) => r.entropy,
  "advantage": (r) => r.advantage,
};
const hues = { low: "215 75%", high: "28 90%" };
const shade = (value, limit) => {
  if (value === null || value === undefined) return "#ccc";
  const t = limit > 0 ? Math.min(1, Math.abs(value) / limit) : 0;
  if (t === 0) return "hsl(0 0% 95%)";
  return `hsl(${value < 0 ? hues.low : hues.high} ${Math.round(96 - 34 * t)}%)`;
};
const MOST = 20000; // decisions shown at once: each is a node of the page
let shown = [];
for (const [name, of] of Object.entries(quantities)) {
  const option = $("colour").appendChild(make("option", "", name));
  option.disabled = !run.rollouts.some(of);
}
const recorded = [...new Set(run.rollouts.map((r) => r.step))];
for (const step of recorded.toReversed()) $("step").append(new Option(step, step));
$("step").append(new Option("all", ""));

function colourIn() {
  const of = quantities[$("colour").value], values = shown.map((r) => of(r) || []);
  // 98 of 100 decisions lie within the scale, lest one of them bleach the others.
  const sizes = values.flat().filter((v) => v !== null).map(Math.abs).sort((a, b) => a - b);
  const limit = sizes.length ? sizes[Math.floor(0.98 * (sizes.length - 1))] || sizes.at(-1) : 0;
  document.querySelectorAll("#list .text").forEach((text, r) => {
    [...text.children].forEach((token, i) => { token.style.background = shade(values[r][i], limit); });
  });
  const some = (sign) => values.some((list) => list.some((v) => sign * v > 0)), bar = make("i");
  const low = some(-1) ? -limit : 0, high = some(1) ? limit : 0;
  bar.style.background = `linear-gradient(to right, ${shade(low, limit)}, ${low * high ? shade(0, limit) + ", " : ""}${shade(high, limit)})`;
  $("scale").replaceChildren(...(shown.length ? [number(low, 2), bar, number(high, 2)] : []));
}
function describe(r, i) {
  const parts = Object.entries(quantities).map(([name, of]) => [name, of(r)]).filter(([, v]) => v);
  $("token").textContent = `${JSON.stringify(r.pieces[i])} (decision ${i}): ` + parts.map(([n, v]) => `${n} ${number(v[i])}`).join(", ");
}
function rolloutNode(r) {
  const node = make("article", "rollout"), badge = node.appendChild(make("div", "badge")), text = node.appendChild(make("div", "text"));
  badge.append(make("b", "", number(r.score)), ` ${r.stop}`, make("br"), `${r.pieces.length} decisions`);
  badge.title = Object.entries(r.scores).map(([name, score]) => `${name} ${number(score)}`).join(", ");
  text.tabIndex = 0;
  text.setAttribute("aria-label", r.text);
  for (const piece of r.pieces) text.append(make("span", "", piece.replaceAll("\n", "⏎\n") || "·"));
  return node;
}
function list() {
  const words = $("search").value.toLowerCase(), wanted = $("score").value, step = $("step").value;
  const found = run.rollouts.filter((r) => (!step || String(r.step) === step)
    && (!words || (r.prompt + r.text).toLowerCase().includes(words))
    && (!wanted || (r.score >= 1) === (wanted === "right")));
  let room = MOST;
  shown = found.filter((r, i) => (room -= r.pieces.length) >= 0 || !i);
  const groups = new Map();
  for (const r of shown) {
    const key = `${r.step} ${r.group}`;
    if (!groups.has(key)) {
      const node = make("section", "group");
      node.append(make("h3", "", `Step ${r.step}, group ${r.group}, task ${r.task}`), make("div", "prompt", r.prompt));
      if (r.answer !== null) node.append(make("div", "prompt", `answer: ${r.answer}`));
      groups.set(key, node);
    }
    groups.get(key).append(rolloutNode(r));
  }
  $("list").replaceChildren(...groups.values());
  $("shown").textContent = run.rollouts.length ? `${shown.length} of ${found.length} shown` : "This run recorded none.";
  $("token").textContent = shown.length ? "Point at a decision, or press Tab and the arrow keys, to see its numbers." : "";
  colourIn();
}
// One listener for all decisions: there may be tens of thousands.
function at(token) {
  if (!token.matches(".text span")) return;
  document.querySelector(".text span.at")?.classList.remove("at");
  token.classList.add("at");
  const text = token.parentNode, texts = [...document.querySelectorAll("#list .text")];
  describe(shown[texts.indexOf(text)], [...text.children].indexOf(token));
}
for (const kind of ["mouseover", "click"]) $("list").addEventListener(kind, (event) => at(event.target));
$("list").addEventListener("keydown", (event) => {
  const text = event.target, step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
  if (!text.matches(".text") || step === undefined) return;
  event.preventDefault();
  const here = [...text.children].findIndex((token) => token.classList.contains("at"));
  at(text.children[Math.min(text.children.length - 1, Math.max(0, here + step))]);
});
for (const id of ["step", "score", "search"]) $(id).addEventListener("input", list);
$("colour").addEventListener("input", colourIn);
list();
