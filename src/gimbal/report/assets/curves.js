// Curves. A metric is drawn in the first chart that claims it; what none claims is drawn with others of its prefix.
const claims = [
  ["Solved", /^(pass_rate|eval\/(pass@.*|greedy))$/, "Share of sampled rollouts that solve their task, and the held-out evaluation if it ran during training."],
  ["Score", /^(reward\/mean|eval\/(greedy_)?score)$/, "Mean score of the sampled rollouts."],
  ["Coverage", /^(reward|eval)\/.*\/coverage$/, "Share of the data that samples come near to: a reward that rises while this falls is of one sample drawn again and again."],
  ["Distance to the data", /^(reward|eval)\/.*\/distance$/, "Of a sample to the nearest of the data: a reward that rises with it is hacked."],
  ["Rewards by name", /^reward\/.*\/mean$/, "Each reward before weighting."],
  ["Spread of scores", /^reward\/std$/, "Standard deviation over the sampled rollouts."],
  ["No signal", /^(reward\/zero_std_frac|length\/truncated_frac)$/, "Share of groups whose scores are all equal; share of rollouts cut off at the length limit."],
  ["Length", /^length\/|^eval\/length$/, "Decisions of a rollout."],
  ["Discrepancy", /^mismatch\/prob_diff/, "Mean |p − p′| between sampler and trainer on the decisions trained on: in all, and by whether newer weights exist."],
  ["Effective sample share", /^mismatch\/ess_/, "(Σw)² / (n Σw²) of w = exp(proximal − behavior): 1 where sampler and trainer agree."],
  ["Tails of the ratio", /^mismatch\/(k3|outside_frac)$/, "k3 estimates KL(sampler ‖ trainer); share of w outside [0.5, 2]."],
  ["Largest log-ratio", /^mismatch\//, "Largest |proximal − behavior| of a decision."],
  ["Age", /^staleness\/(mean|p95|max)$/, "Learner version at the gradient minus the version that sampled the decision."],
  ["Share of decisions by age", /^staleness\/share\//, ""],
  ["Entropy", /^entropy\//, "Of the distributions sampled from, or of the trained policy."],
  ["KL", /^kl\//, "k3 of the policy in training to its anchor (old) or to the reference (ref)."],
  ["Clipped", /^clip_ratio\//, "Share of decisions beyond each edge of the trust region."],
  ["Correction's weights", /^is_weight\//, "Weights of the correction for sampler and staleness, and the share that it sets to 0."],
  ["Advantage", /^advantage\//, "Over the decisions trained on, after shaping."],
  ["Causes of the log-ratio", /^cause\//, "Signed parts of log(policy / sampler) that add up to its mean."],
  ["Loss", /^loss$/, "Of the objective. Its value means little: near 0 is normal."],
  ["Gradient norm", /^grad_norm$/, "Before clipping."],
  ["Coefficients under control", /^control\//, ""],
  ["Delivery: slope", /^sync\/slope$/, "How far the sampler followed the trainer's movement: 1 delivered, 0 lost."],
  ["Delivery: gap", /^sync\/gap$/, "Mean |log-prob gap| between sampler and trainer on the canary."],
  ["Dropped groups", /^drops\//, "So far, by reason."],
  ["Kept groups", /^kept_frac$/, "Share of finished groups that the filters let through."],
  ["Delivery: versions unproved", /^sync\/unproved_versions$/, "Since the trainer's movement last exceeded the sampler's numerical noise."],
  ["Seconds of a step", /^time\//, ""],
  ["Speed", /^perf\//, "Decisions a second, training included."],
  ["Decisions generated", /^tokens$/, "So far."],
  ["Learning rate", /^lr$/, ""],
];
const KEY = [/^(pass_rate|reward\/mean)$/, /^(mismatch\/prob_diff|kl\/old)$/, /^(grad_norm|length\/mean)$/]; // one curve of each in the overview
const counted = /^(staleness\/share|drops)\//; // what a row does not name is 0 here, and unknown elsewhere
const DRAWN = ["tokens", "env_steps", "denoising_steps", "decisions"]; // how many so far, in the unit of the policy's family
const hidden = new Set(); // families not drawn
const drawn = new Map(); // a chart's card -> its plot, while it has one
let inView = new Set();

const titled = (name) => claims.find(([, pattern]) => pattern.test(name)) ?? [name.includes("/") ? name.slice(0, name.lastIndexOf("/")) : name, null, ""];
const smoothed = (values, weight) => {
  let mean = null;
  return values.map((value) => {
    if (value === null) return null;
    mean = mean === null ? value : weight * mean + (1 - weight) * value;
    return mean;
  });
};

// Every chart: {title, caption, names}. Of several runs each metric has a chart of its own, so that colours are free for runs.
function chartList() {
  const names = [...new Set(state.runs.flatMap((run) => Object.keys(run.metrics)))], charts = new Map(claims.map(([title]) => [title, null]));
  for (const name of names) {
    const [title, , caption] = titled(name);
    if (!charts.get(title)) charts.set(title, { title, caption, names: [] });
    charts.get(title).names.push(name);
  }
  const list = [...charts.values()].filter(Boolean);
  if (state.runs.length === 1) return list;
  return list.flatMap(({ title, caption, names: all }) => all.map((name) => ({ title: all.length > 1 ? `${title}: ${name}` : title, caption, names: [name] })));
}

function across(run) {
  const chosen = $("across").value;
  let sum = 0;
  const drawn = DRAWN.map((unit) => run.metrics[unit]).find(Boolean);
  if (chosen === "decisions") return run.steps.map((_, i) => (sum = drawn?.[i] ?? sum));
  if (chosen === "seconds") return run.steps.map((_, i) => (sum += run.metrics["time/step"]?.[i] ?? 0));
  return run.steps;
}

// Curves of one chart: {label, colour, x, y, low, high}; low and high where several seeds are one curve.
function curvesOf(names) {
  const weight = Number($("smooth").value), log = $("log").checked;
  const values = (run, name) => smoothed((run.metrics[name] ?? run.steps.map(() => null)).map((v) => (v === null && counted.test(name) ? 0 : v)), weight)
    .map((v) => (log && !(v > 0) ? null : v)); // a logarithm has no place for 0 and below
  if (state.runs.length === 1) {
    return names.map((name, i) => ({ label: name, colour: colourOf(i), x: across(state.runs[0]), y: values(state.runs[0], name) }));
  }
  const [name] = names, curves = [], banded = $("band").checked && !$("across").value;
  for (const members of families()) {
    if (hidden.has(state.runs[members[0]].family)) continue;
    const known = members.filter((i) => state.runs[i].metrics[name]);
    if (!banded || known.length < 2) {
      for (const i of known) curves.push({ label: state.runs[i].name, colour: runColour(i), x: across(state.runs[i]), y: values(state.runs[i], name) });
      continue;
    }
    const [x, ...each] = uPlot.join(known.map((i) => [state.runs[i].steps, values(state.runs[i], name)]));
    // A mean over those seeds only that are still running would leap where one ends.
    const at = x.map((_, s) => each.map((y) => y[s]).filter((v) => v !== null && v !== undefined)).map((all) => (all.length === known.length ? all : []));
    const over = (f) => at.map((all) => (all.length ? f(all) : null));
    const label = `${state.runs[members[0]].label} (${known.length} seeds)`;
    curves.push({ label, colour: colourOf(families().length > 1 ? state.runs[known[0]].family : 0), x, y: over((all) => all.reduce((a, b) => a + b) / all.length),
      low: over((all) => Math.min(...all)), high: over((all) => Math.max(...all)) });
  }
  return curves;
}

function plot(card) {
  drawn.get(card)?.destroy();
  const holder = card.querySelector(".plot"), curves = curvesOf(card.names), log = $("log").checked;
  const flatList = curves.flatMap((c) => (c.low ? [c.y, c.low, c.high] : [c.y]));
  const known = flatList.flat().filter((v) => v !== null), least = known.reduce((a, b) => Math.min(a, b), Infinity), most = known.reduce((a, b) => Math.max(a, b), -Infinity);
  const flat = most - least <= 1e-5 * Math.max(Math.abs(least), Math.abs(most)); // rounding alone; ticks so close cannot be distinguished
  card.setAttribute("aria-label", `${card.title}. Last: ` + curves.map((c) => `${c.label} ${number(c.y.findLast((v) => v !== null))}`).join(", "));
  if (!known.length) {
    drawn.delete(card);
    holder.replaceChildren(make("p", "", log ? "Nothing above 0 to draw on a log scale." : "Nothing known."));
    return;
  }
  holder.replaceChildren();
  const style = getComputedStyle(document.body), ink = style.color, line = style.getPropertyValue("border-top-color");
  const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  const series = [{ label: $("across").value || "step", value: (u, v) => number(Math.round(v ?? u.data[0].at(-1))) }], bands = [];
  const around = (v) => (v === 0 ? [0, 1] : [v - Math.abs(v) / 10, v + Math.abs(v) / 10]);
  for (const c of curves) {
    const last = c.y.findLast((v) => v !== null), from = series.length;
    const told = (u, v, at) => {
      if (at === null || at === undefined) return number(last);
      const [low, high] = c.low ? [u.data[from + 1][at], u.data[from + 2][at]] : [null, null];
      return number(v) + (low === null || low === undefined ? "" : ` [${number(low, 3)}, ${number(high, 3)}]`);
    };
    series.push({ label: c.label, stroke: c.colour, width: 1.6, spanGaps: !log, points: { show: c.y.filter((v) => v !== null).length < 12 }, value: (u, v, _, at) => told(u, v, at) });
    if (!c.low) continue;
    for (const label of ["low", "high"]) series.push({ label, class: "edge", stroke: c.colour + "00", points: { show: false }, spanGaps: true });
    bands.push({ series: [from + 2, from + 1], fill: c.colour + "33" });
  }
  drawn.set(card, new uPlot({
    width: holder.clientWidth, height: 190,
    cursor: { sync: { key: "run" }, points: { size: 6 }, y: false },
    scales: { x: { time: false }, y: log ? { distr: 3, ...(flat ? { range: [least / 2, most * 2] } : {}) } : flat ? { range: around(known[0]) } : {} },
    axes: [
      { ...axis, ...($("across").value ? { values: (_, all) => all.map((v) => Intl.NumberFormat("en", { notation: "compact" }).format(v)) } : { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000] }) },
      { ...axis, size: 64, values: (_, all) => all.map((v) => (v === null ? "" : number(v, 3))) },
    ],
    series, bands,
  }, uPlot.join(curves.flatMap((c) => (c.low ? [[c.x, c.y, c.low, c.high]] : [[c.x, c.y]]))), holder));
}

// Only what is in view is drawn, and drawn again when something changed.
const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) inView.delete(target);
    else {
      inView.add(target);
      if (target.stale) plot(target);
      target.stale = false;
    }
  }
}, { rootMargin: "300px" });
function redraw() {
  for (const card of document.querySelectorAll(".chart")) {
    card.stale = !inView.has(card);
    if (!card.stale) plot(card);
  }
}

function cardOf({ title, caption, names }) {
  const card = make("div", "chart");
  card.append(make("h3", "", title), make("p", "", caption), make("div", "plot"));
  Object.assign(card, { names, stale: true });
  card.title = "";
  card.setAttribute("role", "img");
  card.setAttribute("aria-label", title);
  watcher.observe(card);
  return card;
}

let chartsOf = ""; // the charts that stand on the page
function curves() {
  const list = chartList(), steps = state.runs.some((run) => run.steps.length);
  $("bands").hidden = !families().some((members) => members.length > 1);
  const words = $("which").value.toLowerCase(), shown = list.filter(({ title, names }) => (title + names.join(" ")).toLowerCase().includes(words));
  const wanted = JSON.stringify([shown, state.runs.map((run) => run.family)]);
  if (wanted === chartsOf) return redraw();
  chartsOf = wanted;
  for (const chart of drawn.values()) chart.destroy();
  drawn.clear();
  inView = new Set();
  watcher.disconnect();
  const names = list.flatMap((chart) => chart.names);
  const key = KEY.map((pattern) => names.find((name) => pattern.test(name))).filter(Boolean);
  $("key").replaceChildren(...(steps ? key.map((name) => cardOf({ title: titled(name)[0], caption: titled(name)[2], names: [name] })) : []));
  $("charts").replaceChildren(...(steps ? shown.map(cardOf) : [make("p", "", "No step has been recorded yet.")]));
  familyBoxes();
}

function familyBoxes() {
  document.querySelector("#curves .families")?.remove();
  if (families().length < 2) return;
  const boxes = make("div", "controls families");
  for (const [i, ...more] of families()) {
    const { family } = state.runs[i], label = boxes.appendChild(make("label")), box = label.appendChild(make("input"));
    box.type = "checkbox";
    box.checked = !hidden.has(family);
    box.addEventListener("change", () => {
      hidden[box.checked ? "delete" : "add"](family);
      redraw();
    });
    label.append(swatch(i), more.length ? `${state.runs[i].label} (${more.length + 1} seeds)` : state.runs[i].label);
  }
  $("charts").before(boxes);
}

for (const name of ["", "decisions", "seconds"]) $("across").append(new Option(name || "steps", name));
for (const id of ["smooth", "log", "across", "band"]) $(id).addEventListener("input", redraw);
$("which").addEventListener("input", curves);
new ResizeObserver(() => {
  for (const [card, chart] of drawn) chart.setSize({ width: card.querySelector(".plot").clientWidth, height: 190 });
}).observe($("charts"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("beforeprint", () => document.querySelectorAll(".chart").forEach((card) => card.stale && plot(card)));
