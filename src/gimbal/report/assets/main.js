// The page begins; and a live one continues with what its server has read since.
function take(data, given) {
  const index = data.rollouts, { run, step, group, sample, score, solved, stop, text, point, length, chunk, tasks } = index;
  if (data.restart) {
    Object.assign(state, { rollouts: [], groups: new Map(), recorded: 0 });
    chosen = null;
  }
  Object.assign(state, { runs: data.runs, conclusion: data.conclusion, compared: data.compared, differs: data.differs, marks: data.marks });
  state.recorded += data.recorded;
  for (let i = 0; i < step.length; i++) {
    const task = tasks[index.task[i]], r = { run: run[i], step: step[i], group: group[i], sample: sample[i], score: score[i], solved: solved[i], stop: stop[i], text: text[i], point: point[i],
      length: length[i], task, chunk: chunk[i], detail: given ? given[chunk[i][0]][chunk[i][1]] : null, searched: `${task[1]}\n${text[i]}`.toLowerCase() };
    const key = `${r.run} ${r.step} ${r.group}`;
    state.rollouts.push(r);
    if (!state.groups.has(key)) state.groups.set(key, []);
    state.groups.get(key).push(r);
  }
  overview();
  curves();
  densities();
  if (step.length || data.restart || !$("found").textContent) filter();
  if (!chosen) choose(found.find((r) => !r.solved) ?? found[0]);
}

async function follow() {
  const started = performance.now();
  try {
    const answer = await fetch(`news?marks=${encodeURIComponent(JSON.stringify(state.marks))}`);
    if (answer.status === 200) {
      const { data, details: given } = await answer.json();
      take(data, given);
    }
    $("live").textContent = state.runs.every((run) => run.ended) ? "ended" : "live";
  } catch {
    $("live").textContent = "gimbal report --serve is gone; this is what it last said";
  }
  // A long run has much to say; at most a tenth of the time goes into asking.
  setTimeout(follow, Math.max(2000, 10 * (performance.now() - started)));
}

const dark = () => getComputedStyle(document.documentElement).colorScheme === "dark" || (getComputedStyle(document.documentElement).colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
$("theme").addEventListener("click", () => {
  document.documentElement.style.colorScheme = dark() ? "light" : "dark";
  redraw();
});

(async () => {
  const data = await unpack("data");
  state.groups = new Map();
  state.live = data.live;
  $("of-run").hidden = data.runs.length < 2;
  $("filter").elements.run.replaceChildren(new Option("all", ""), ...data.runs.map((run, i) => new Option(run.name, i)));
  take(data, null);
  recipes();
  document.documentElement.dataset.ready = "yes";
  if (state.live) follow();
})();
