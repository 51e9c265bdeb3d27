// The list of rollouts: filtered, sorted, and only those rows made that are in view, for there may be tens of thousands.
const ROW = 30; // pixels of a row; the style sheet knows it too
const columns = [
  { name: "reward", of: (r) => r.score },
  { name: "step", of: (r) => r.step },
  { name: "length", of: (r) => r.length },
  { name: "task", of: (r) => r.task[0] },
  { name: "text", of: (r) => r.text },
];
let order = { by: 1, down: true }, found = [], chosen = null;

function filter() {
  const wanted = Object.fromEntries(new FormData($("filter"))), words = wanted.words.toLowerCase(), task = wanted.task.toLowerCase();
  const between = (value, name) => (wanted[`${name}-low`] === "" || value >= Number(wanted[`${name}-low`])) && (wanted[`${name}-high`] === "" || value <= Number(wanted[`${name}-high`]));
  const outcome = { "": () => true, solved: (r) => r.solved, wrong: (r) => r.solved === false, cut: (r) => r.stop === "length" }[wanted.outcome];
  found = state.rollouts.filter((r) => outcome(r) && between(r.score, "score") && between(r.length, "length") && between(r.step, "step")
    && (!wanted.run || r.run === Number(wanted.run)) && (!task || r.task[0].toLowerCase().includes(task)) && (!words || r.searched.includes(words)));
  sortFound();
}
function sortFound() {
  const { of } = columns[order.by];
  // The rollouts of a group stay together, in their order, where the key does not part them.
  found.sort((a, b) => compare(of(a), of(b)) * (order.down ? -1 : 1) || a.run - b.run || a.step - b.step || a.group - b.group || a.sample - b.sample);
  $("found").textContent = state.rollouts.length
    ? `${number(found.length)} of ${number(state.rollouts.length)}${state.recorded > state.rollouts.length ? ` (${number(state.recorded)} recorded; these are of steps spread evenly over the run)` : ""}`
    : "This run has recorded none yet (see record_every).";
  $("heads").querySelectorAll("button").forEach((button, i) => { button.dataset.sort = i !== order.by ? "" : order.down ? "down" : "up"; });
  $("list").firstElementChild.style.height = `${found.length * ROW}px`;
  rows();
}

function rowOf(r, at) {
  const row = make("div", "row");
  row.id = `row-${at}`;
  row.dataset.at = at;
  row.style.top = `${at * ROW}px`;
  row.setAttribute("role", "option");
  row.setAttribute("aria-selected", r === chosen);
  row.setAttribute("aria-posinset", at + 1);
  row.setAttribute("aria-setsize", found.length);
  const reward = row.appendChild(make("span", r.solved ? "reward solved" : "reward", number(r.score, 3)));
  if (state.runs.length > 1) {
    const dot = swatch(r.run);
    dot.title = state.runs[r.run].name;
    reward.prepend(dot);
  }
  row.append(make("span", "", number(r.step)), make("span", r.stop === "length" ? "cut" : "", number(r.length)), make("span", "task", r.task[0]), make("span", "text", r.text.slice(0, 200).replaceAll(/\s+/g, " ")));
  return row;
}
function rows() {
  const list = $("list"), first = Math.max(0, Math.floor(list.scrollTop / ROW) - 5), count = Math.ceil(list.clientHeight / ROW) + 10;
  list.firstElementChild.replaceChildren(...found.slice(first, first + count).map((r, i) => rowOf(r, first + i)));
  const at = found.indexOf(chosen);
  if (at >= first && at < first + count) list.setAttribute("aria-activedescendant", `row-${at}`);
  else list.removeAttribute("aria-activedescendant");
}

// The choice shown; where list and group stand one above the other, ``go`` takes the reader to the group.
async function choose(r, go) {
  if (!r) return;
  chosen = r;
  const list = $("list"), at = found.indexOf(r);
  if (at >= 0 && (at * ROW < list.scrollTop || (at + 1) * ROW > list.scrollTop + list.clientHeight)) list.scrollTop = (at - 2) * ROW;
  rows();
  await showGroup(r);
  if (go && $("group").offsetTop > $("list").offsetTop) $("group").scrollIntoView();
}

columns.forEach((column, i) => {
  const head = $("heads").appendChild(make("span")), button = head.appendChild(make("button", "sort", column.name));
  button.setAttribute("aria-label", `sort by ${column.name}`);
  button.type = "button";
  button.addEventListener("click", () => {
    order = { by: i, down: order.by === i ? !order.down : i < 3 };
    $("list").scrollTop = 0;
    sortFound();
  });
});
let asked = false;
$("list").addEventListener("scroll", () => {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    rows();
  });
}, { passive: true });
$("list").addEventListener("click", (event) => {
  const row = event.target.closest(".row");
  if (row) choose(found[Number(row.dataset.at)], true);
});
$("list").addEventListener("keydown", (event) => {
  const page = Math.floor($("list").clientHeight / ROW) - 1;
  const by = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
  if (event.key === "Enter") $("group").querySelector(".chosen .tokens")?.focus();
  if (by === undefined || !found.length) return;
  event.preventDefault();
  choose(found[Math.min(found.length - 1, Math.max(0, found.indexOf(chosen) + by))]);
});
new ResizeObserver(rows).observe($("list"));
$("filter").addEventListener("submit", (event) => event.preventDefault());
$("filter").addEventListener("reset", () => setTimeout(filter)); // after the fields are empty
// Typing is not held up by ten thousand rollouts.
let typed = 0;
$("filter").addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(() => {
    $("list").scrollTop = 0;
    filter();
  }, 80);
});
