// In short: what was learned, how stable, what it cost; and the recipes with what differs among them.
function swatch(i) {
  const node = make("i", "swatch");
  node.style.background = runColour(i);
  return node;
}
const runName = (i) => {
  const node = make("span", "name");
  node.append(swatch(i), state.runs[i].name);
  return node;
};

// From before to after as a bar, on one scale for all runs.
function moved(run, low, high) {
  const { before, after } = run.learned, node = make("span", "moved");
  if (after === null) return "–";
  const at = (v) => `${((v - low) / (high - low || 1)) * 100}%`;
  const bar = node.appendChild(make("span", after >= before ? "bar" : "bar fell"));
  const fill = bar.appendChild(make("i"));
  fill.style.left = at(Math.min(before, after));
  fill.style.right = `${100 - parseFloat(at(Math.max(before, after)))}%`;
  const told = (v) => (Math.abs(v) < 10 ? v.toFixed(3) : number(v, 3));
  node.append(`${told(before)} → `, make("b", "", told(after)));
  return node;
}

function trouble(run) {
  const bad = run.signs.filter((sign) => sign.bad);
  const node = make("span", bad.length ? "bad" : "good", bad.length ? bad.map((sign) => sign.what).join(", ") : "no sign of trouble");
  node.title = run.signs.map((sign) => `${sign.bad ? "!" : "✓"} ${sign.what}: ${sign.text}`).join("\n");
  return node;
}

function board() {
  const known = state.runs.flatMap((run) => [run.learned.before, run.learned.after]).filter((v) => v !== null);
  const low = Math.min(0, ...known), high = Math.max(state.runs.some((run) => /pass|accuracy|solved/.test(run.learned.figure)) ? 1 : 0, ...known);
  const figures = [...new Set(state.runs.map((run) => run.learned.figure).filter(Boolean))];
  const columns = [
    { name: "run", text: true, of: (i) => state.runs[i].name, shown: runName },
    { name: "recipe", text: true, of: (i) => state.runs[i].label, shown: (i) => state.runs[i].label },
    { name: "seed", of: (i) => state.runs[i].seed },
    { name: figures.length === 1 ? figures[0] : "learned", of: (i) => state.runs[i].learned.after, shown: (i) => moved(state.runs[i], low, high) },
    { name: "stable", text: true, of: (i) => state.runs[i].signs.filter((s) => s.bad).length, shown: (i) => trouble(state.runs[i]) },
    { name: "steps", of: (i) => state.runs[i].steps.at(-1) ?? 0 },
    { name: "time", of: (i) => state.runs[i].cost.seconds, shown: (i) => duration(state.runs[i].cost.seconds) },
    { name: "decisions", of: (i) => state.runs[i].cost.decisions },
    { name: "ended", text: true, of: (i) => Number(state.runs[i].ended), shown: (i) => (state.runs[i].ended ? "yes" : "not yet") },
  ];
  $("board").replaceChildren(sortable(columns, state.runs.map((_, i) => i), state.runs.length > 1 ? 3 : null));
}

function signs() {
  $("signs").replaceChildren();
  $("evaluation").replaceChildren();
  if (state.runs.length > 1) {
    // Of many runs only what is wrong; the board says the rest.
    const bad = state.runs.flatMap((run, i) => run.signs.filter((sign) => sign.bad).map((sign) => ({ i, sign })));
    if (!bad.length) return;
    $("signs").append(make("h3", "", "Where to look"));
    const list = $("signs").appendChild(make("ul", "signs"));
    for (const { i, sign } of bad) {
      const item = list.appendChild(make("li", sign.what === "faults" ? "bad fault" : "bad"));
      item.append(runName(i), ` ${sign.what}: ${sign.text}`);
    }
    return;
  }
  const [run] = state.runs;
  if (run.signs.length) {
    $("signs").append(make("h3", "", "How stable"));
    const list = $("signs").appendChild(make("ul", "signs"));
    for (const sign of run.signs) {
      const item = list.appendChild(make("li", sign.bad ? (sign.what === "faults" ? "bad fault" : "bad") : "good"));
      item.append(make("b", "", sign.what), ` ${sign.text}`);
    }
  }
  if (run.evaluation.length) {
    $("evaluation").append(make("h3", "", "Held-out evaluation"));
    $("evaluation").append(sortable([
      { name: "figure", text: true, of: (row) => row[0], shown: (row) => row[0] },
      { name: "before", of: (row) => row[1], shown: (row) => number(row[1], 3) },
      { name: "after", of: (row) => row[2], shown: (row) => number(row[2], 3) },
      { name: "change", of: (row) => row[2] - row[1], shown: (row) => (row[1] === null || row[2] === null ? "–" : signed(row[2] - row[1], 3)) },
    ], run.evaluation));
  }
  $("evaluation").append(make("h3", "", "What it cost"));
  for (const line of [run.cost.text].flat()) $("evaluation").append(make("p", "", line));
}

function films() {
  const filmed = state.runs.map((_, i) => i).filter((i) => state.runs[i].film);
  $("films").replaceChildren();
  if (!filmed.length) return;
  $("films").append(make("h3", "", "An episode, each action the likeliest"));
  for (const i of filmed) {
    const node = $("films").appendChild(make("figure")), image = node.appendChild(make("img"));
    image.src = state.runs[i].film;
    image.alt = `an episode of ${state.runs[i].name}`;
    if (state.runs.length > 1) node.appendChild(make("figcaption")).append(runName(i));
  }
}

function wrongButton() {
  const wrong = state.rollouts.filter((r) => r.solved === false);
  if (!wrong.length) return;
  const button = make("button", "", `Show a wrong rollout (${number(wrong.length)} of ${number(state.rollouts.length)} recorded)`);
  button.type = "button";
  button.addEventListener("click", () => {
    $("filter").reset();
    $("filter").elements.outcome.value = "wrong";
    filter();
    location.hash = "rollouts";
    $("rollouts").scrollIntoView();
    $("list").focus({ preventScroll: true });
    choose(found[0], true);
  });
  $("conclusion").append(" ", button);
}

function recipes() {
  $("differs").replaceChildren();
  if (state.runs.length > 1) {
    const kinds = families().map(([i]) => i);
    $("differs").append(make("p", "", state.differs.length ? "What differs:" : "These runs differ only in their seeds."));
    if (state.differs.length) {
      $("differs").append(sortable([
        { name: "key", text: true, of: (key) => key, shown: (key) => key.replace(/^run\./, "") },
        ...kinds.map((i) => ({ name: state.runs[i].label, text: true, of: (key) => state.runs[i].settings[key] ?? "–", shown: (key) => state.runs[i].settings[key] ?? "–" })),
      ], state.differs));
    }
  }
  $("recipes").replaceChildren(...state.runs.map((run, i) => {
    const node = make("details"), head = node.appendChild(make("summary")), text = node.appendChild(make("pre", "", run.recipe || "This run has no recipe.yaml."));
    head.append(runName(i));
    text.tabIndex = 0;
    node.open = state.runs.length === 1;
    return node;
  }));
}

function overview() {
  document.querySelector("h1").textContent = document.title.replace(/ · gimbal$/, "");
  $("conclusion").textContent = state.conclusion;
  wrongButton();
  $("compared").textContent = state.compared;
  board();
  signs();
  films();
}
