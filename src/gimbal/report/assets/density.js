// Where samples of two numbers lie as training goes on: up to six densities, of the recorded samples of consecutive steps, on the same axes.
const WINDOWS = 6, CELLS = 36;
const drawing = (tag, attributes) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};

// One density: a cell for each place where samples are, as dark as the root of how many, on axes from -reach to reach.
function densityOf(points, reach, colour) {
  const counts = new Map();
  for (const [x, y] of points) {
    const [column, line] = [x, -y].map((v) => Math.floor(((v + reach) / (2 * reach)) * CELLS));
    const key = line * CELLS + column;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  const most = Math.max(...counts.values());
  const svg = drawing("svg", { viewBox: `0 0 ${CELLS} ${CELLS}`, width: 150, height: 150, role: "img", "aria-label": `density of ${points.length} samples` });
  svg.append(drawing("rect", { width: CELLS, height: CELLS, fill: "none", stroke: "currentColor", "stroke-opacity": 0.3, "stroke-width": 0.3 }));
  svg.append(drawing("path", { d: `M0,${CELLS / 2}h${CELLS}M${CELLS / 2},0v${CELLS}`, stroke: "currentColor", "stroke-opacity": 0.15, "stroke-width": 0.2 }));
  for (const [key, count] of counts) {
    const [line, column] = [Math.floor(key / CELLS), key % CELLS];
    svg.append(drawing("rect", { x: column, y: line, width: 1, height: 1, fill: colour, "fill-opacity": (0.15 + 0.85 * Math.sqrt(count / most)).toFixed(2) }));
  }
  return svg;
}

function densities() {
  const known = state.rollouts.filter((r) => r.point);
  $("densities").replaceChildren();
  if (!known.length) return;
  const reach = Math.ceil(known.reduce((most, r) => Math.max(most, Math.abs(r.point[0]), Math.abs(r.point[1])), 0) * 1.001) || 1;
  $("densities").append(make("h3", "", "Density of the samples"), make("p", "", `Of the recorded samples, both axes from -${reach} to ${reach}.`));
  state.runs.forEach((run, i) => {
    const own = known.filter((r) => r.run === i), steps = [...new Set(own.map((r) => r.step))].sort((a, b) => a - b);
    if (!steps.length) return;
    const row = $("densities").appendChild(make("div", "densities")), each = Math.ceil(steps.length / WINDOWS);
    if (state.runs.length > 1) row.append(runName(i));
    for (let first = 0; first < steps.length; first += each) {
      const from = steps[first], to = steps[Math.min(first + each, steps.length) - 1], held = own.filter((r) => r.step >= from && r.step <= to);
      const figure = row.appendChild(make("figure"));
      figure.append(densityOf(held.map((r) => r.point), reach, runColour(i)), make("figcaption", "", `${from === to ? `step ${from}` : `steps ${from} to ${to}`} (${held.length})`));
    }
  });
}
