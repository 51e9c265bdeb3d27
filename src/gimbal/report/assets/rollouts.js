// A group side by side: every decision coloured by one of its numbers. Step s took its gradient at version s - 1.
// ``of`` gives the numbers of a rollout's decisions, ``tone`` what the colour tells: 0 is none.
const same = (v) => v;
const both = (d, f) => d.proximal && d.behavior && d.proximal.map((p, i) => (p === null || d.behavior[i] === null ? null : f(p, d.behavior[i])));
const quantities = {
  "log-prob": { of: (d) => d.behavior, tone: same, says: "of the sampler" },
  advantage: { of: (d) => d.advantage, tone: same, says: "as the objective saw it" },
  ratio: { of: (d) => both(d, (p, q) => Math.exp(p - q)), tone: Math.log, says: "exp(proximal − behavior): the trainer's probability over the sampler's" },
  discrepancy: { of: (d) => both(d, (p, q) => Math.exp(p) - Math.exp(q)), tone: same, says: "p − p′: the trainer's probability minus the sampler's" },
  entropy: { of: (d) => d.entropy, tone: same, says: "of the distribution it was drawn from; recorded with engine.entropy=true" },
  age: { of: (d, r) => d.version && d.version.map((v) => r.step - 1 - v), tone: same, says: "learner's versions between draw and gradient" },
  mask: { of: (d) => d.mask ?? d.pieces.map(() => 1), tone: (v) => 1 - v, says: "0 where the decision was not trained on" },
};
const PARTS = ["response", "control", "observation", "latent"];
const OBSERVATION = 2;
const MOST = 3000; // decisions of a rollout shown before one asks for the rest
let colour = "log-prob", scaled = { limit: 0 };
let details = new Map(); // of unpacked chunks, the newest few
let groupNow = { key: "", members: [], details: [] };

async function detailOf(r) {
  if (r.detail) return r.detail;
  const [chunk, at] = r.chunk;
  if (!details.has(chunk)) {
    if (details.size > 12) details.delete(details.keys().next().value);
    details.set(chunk, unpack(`chunk-${chunk}`));
  }
  return (await details.get(chunk))[at];
}

// What cannot be seen is named, and cannot turn the text around it.
const visible = (piece) => piece.replaceAll("\n", "⏎\n").replaceAll(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
  (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`) || "·";

// Runs of decisions of one turn and one speaker: {turn, part, from, to}. One alone needs no fold.
function segments(d, first, end) {
  const list = [];
  for (let i = first; i < end; i++) {
    const turn = d.turn ? d.turn[i] : 0, part = d.part ? d.part[i] : 0, last = list.at(-1);
    if (last && last.turn === turn && (last.part === OBSERVATION) === (part === OBSERVATION)) last.to = i + 1;
    else list.push({ turn, part, from: i, to: i + 1 });
  }
  return list;
}

function tokens(d, from, to, into) {
  for (let i = from; i < to; i++) {
    const token = into.appendChild(make("span", d.mask && !d.mask[i] ? "off" : "", visible(d.pieces[i])));
    token.dataset.i = i;
  }
}

// Decisions first to end of the group's m-th member: read as a conversation where there are turns, or one by one.
const textNode = (m, first, end) => (reading && groupNow.details[m].turn ? talkNode : tokensNode)(m, first, end);

function tokensNode(m, first, end) {
  const d = groupNow.details[m], text = make("div", "tokens"), parts = segments(d, first, end);
  text.m = m;
  text.tabIndex = 0;
  text.setAttribute("role", "group");
  text.setAttribute("aria-label", `Rollout ${groupNow.members[m].sample}, ${end - first} decisions; arrow keys read their numbers`);
  const fill = (most) => {
    text.replaceChildren();
    for (const { turn, part, from, to: last } of parts) {
      const to = Math.min(last, most);
      if (from >= most) break;
      if (parts.length === 1) {
        tokens(d, from, to, text);
        continue;
      }
      const fold = text.appendChild(make("details", part === OBSERVATION ? "observation" : "")), head = fold.appendChild(make("summary"));
      const said = d.pieces.slice(from, Math.min(last, from + 24)).join("").replaceAll(/\s+/g, " ").slice(0, 60);
      head.append(make("b", "", `turn ${turn} ${part === OBSERVATION ? "observation" : "policy"}`), ` ${to - from} decisions `, make("span", "preview", said));
      tokens(d, from, to, fold);
      fold.open = part !== OBSERVATION;
    }
    if (most < end) {
      const more = text.appendChild(make("button", "", `show all ${number(end - first)} decisions`));
      more.type = "button";
      more.addEventListener("click", () => {
        fill(Infinity);
        colourIn();
      });
    }
  };
  fill(first + MOST);
  return text;
}

// What a rollout made, in hard pixels: an image of 8x8 is otherwise a blur.
function pictureOf(d, size) {
  const image = make("img", "made");
  image.src = d.image;
  image.width = size;
  image.alt = "what this rollout made";
  return image;
}

// The group side by side: every image with its reward. A click goes to its rollout.
function gallery() {
  const node = make("div", "gallery");
  groupNow.members.forEach((r, m) => {
    if (!groupNow.details[m].image) return;
    const button = node.appendChild(make("button"));
    button.type = "button";
    button.append(pictureOf(groupNow.details[m], 56), make("span", r.solved ? "reward solved" : "reward", number(r.score, 2)));
    button.addEventListener("click", () => choose(r));
  });
  return node.childElementCount ? [node] : [];
}

function memberNode(m, first) {
  const r = groupNow.members[m], d = groupNow.details[m], node = make("article", r === chosen ? "member chosen" : "member"), head = node.appendChild(make("header"));
  const ended = { stop: "", length: ", cut off" }[r.stop] ?? `, ${r.stop}`, after = first ? `, ${number(first)} shared` : "";
  if (d.row !== null) head.append(`sample ${r.sample}, row ${d.row}: `);
  if (d.role) head.append(make("b", "role", d.role), " ");
  head.append("reward ", make("b", r.solved ? "reward solved" : "reward", number(r.score, 3)), `${{ true: " solved", false: " not solved" }[r.solved] ?? ""}${ended}, ${number(r.length)} decisions${after}`);
  const scores = Object.entries(d.scores ?? {});
  if (scores.length) head.append(make("div", "scores", scores.map(([name, score]) => `${name} ${number(score, 3)}`).join(", ")));
  if (d.image) node.append(pictureOf(d, 96));
  node.append(...stripOf(d));
  const [, prompt] = r.task;
  if (prompt !== groupNow.prompt) node.append(make("div", "prompt own", prompt));
  node.append(textNode(m, first, d.pieces.length));
  node.rollout = r;
  return node;
}

// Rows of one episode (a rewritten context, a seat's decisions) stand together, in order.
function episodes(nodes) {
  const found = [];
  for (const node of nodes) {
    const r = node.rollout, last = found.at(-1);
    if (!r || groupNow.details[groupNow.members.indexOf(r)].row === null) found.push(node);
    else if (last?.sample === r.sample) last.append(node);
    else {
      const one = make("section", "episode");
      one.sample = r.sample;
      one.append(node);
      found.push(one);
    }
  }
  return found;
}

// The group as trees: a member that split off another hangs where it did, and what they share stands once, over both.
function forest() {
  const { members, details: all } = groupNow, below = members.map(() => []), roots = [];
  members.forEach((r, m) => {
    let [sample, at] = all[m].fork ?? [-1, 0], parent = members.findIndex((other, p) => p < m && other.sample === sample);
    while (parent >= 0 && all[parent].fork?.[1] >= at) parent = members.findIndex((other, p) => p < parent && other.sample === all[parent].fork[0]);
    if (parent < 0) roots.push(m);
    else below[parent].push({ m, at });
  });
  const leaves = (m) => [m, ...below[m].flatMap((kid) => leaves(kid.m))];
  // The m-th member from decision first on, with those that split off it later than that.
  const grown = (m, first, kids) => {
    if (!kids.length) return [memberNode(m, first)];
    const at = Math.min(...kids.map((kid) => kid.at)), later = kids.filter((kid) => kid.at > at);
    const here = [m, ...kids.flatMap((kid) => leaves(kid.m))], mean = here.reduce((sum, i) => sum + members[i].score, 0) / here.length;
    const node = make("section", "shared"), head = node.appendChild(make("header")), branches = make("div", "branches");
    head.append(`shared by ${here.length} rollouts, mean reward `, make("b", "", number(mean, 3)));
    branches.append(...grown(m, at, later), ...kids.filter((kid) => kid.at === at).flatMap((kid) => grown(kid.m, at, below[kid.m])));
    node.append(textNode(m, first, at), branches);
    return [node];
  };
  return roots.flatMap((m) => grown(m, 0, below[m]));
}

async function showGroup(r) {
  const key = `${r.run} ${r.step} ${r.group}`, members = state.groups.get(key);
  if (key === groupNow.key && members.length === groupNow.members.length && $("members")) {
    for (const node of $("members").querySelectorAll(".member")) node.classList.toggle("chosen", node.rollout === r);
    return reveal();
  }
  groupNow = { key, members, details: [] };
  const known = await Promise.all(members.map(detailOf));
  if (groupNow.key !== key) return; // another was chosen meanwhile
  groupNow.details = known;
  const mean = members.reduce((sum, m) => sum + m.score, 0) / members.length, [task, prompt, answer] = r.task;
  const asked = members.map((m) => m.task[1]);
  groupNow.prompt = asked.every((one) => one === prompt) ? prompt : "";
  const title = make("h3", "", `Step ${r.step}, group ${r.group}: ${members.length} rollouts, mean reward ${number(mean, 3)}`), about = make("p", "about");
  if (state.runs.length > 1) about.append(runName(r.run), " ");
  about.append(`task ${task}`);
  const ask = make("div", "prompt", prompt), grid = make("div");
  ask.tabIndex = 0;
  grid.id = "members";
  grid.append(...episodes(forest()));
  $("group").replaceChildren(title, about, ...(groupNow.prompt ? [ask] : []), ...(answer === null ? [] : [make("p", "answer", `correct answer: ${answer}`)]), ...gallery(), toolbar(), grid);
  hideNumbers();
  colourIn();
  reveal();
}
const reveal = () => {
  const node = $("group").querySelector(".member.chosen"), pane = $("group");
  if (!node) return;
  const [box, frame] = [node.getBoundingClientRect(), pane.getBoundingClientRect()];
  if (box.top < frame.top || box.top > frame.bottom - 60) pane.scrollTop += box.top - frame.top - 60;
};

function toolbar() {
  const bar = make("div", "controls");
  if (groupNow.details.some((d) => d.turn)) bar.append(...readAs());
  const label = bar.appendChild(make("label", "", "Colour by ")), select = label.appendChild(make("select"));
  select.id = "colour";
  for (const [name, { of }] of Object.entries(quantities)) {
    const option = select.appendChild(new Option(name, name));
    option.disabled = !groupNow.details.some((d, i) => of(d, groupNow.members[i]));
    if (option.disabled) option.textContent += " (not recorded)";
  }
  if ([...select.options].find((option) => option.value === colour)?.disabled) colour = "log-prob";
  select.value = colour;
  select.addEventListener("input", () => {
    colour = select.value;
    colourIn();
  });
  const scale = bar.appendChild(make("span"));
  scale.id = "scale";
  return bar;
}

// How rollouts of several turns are shown; and all folds at once.
function readAs() {
  const label = make("label", "", "Read as "), select = label.appendChild(make("select")), fold = make("button", "", "fold all");
  select.id = "reading";
  select.append(new Option("conversation", "talk"), new Option("decisions", "tokens"));
  select.value = reading ? "talk" : "tokens";
  select.addEventListener("input", () => {
    reading = select.value === "talk";
    $("members").replaceChildren(...episodes(forest()));
    hideNumbers();
    colourIn();
  });
  fold.type = "button";
  fold.id = "fold";
  fold.addEventListener("click", () => {
    const folds = [...$("members").querySelectorAll("details")], open = !folds.some((one) => one.open);
    for (const one of folds) one.open = open;
    fold.textContent = open ? "fold all" : "open all";
  });
  return [label, fold];
}

function colourIn() {
  const { of, tone, says } = quantities[colour], values = groupNow.details.map((d, i) => of(d, groupNow.members[i]) ?? []);
  const tones = values.map((list) => list.map((v) => (v === null ? null : tone(v))));
  // 98 of 100 decisions lie within the scale, lest one of them bleach the others.
  const sizes = tones.flat().filter((v) => v !== null).map(Math.abs).sort((a, b) => a - b);
  const limit = sizes.length ? sizes[Math.floor(0.98 * (sizes.length - 1))] || sizes.at(-1) : 0;
  for (const text of $("members").querySelectorAll(".tokens")) {
    for (const token of text.querySelectorAll("span[data-i]")) {
      const t = tones[text.m][token.dataset.i];
      token.style.setProperty("--t", `${t === null || t === undefined || !limit ? 0 : Math.round(70 * Math.min(1, Math.abs(t) / limit))}%`);
      token.classList.toggle("below", t < 0);
    }
  }
  const all = tones.flat(), low = all.some((t) => t < 0), high = all.some((t) => t > 0);
  const back = (t) => number({ ratio: Math.exp(t), mask: 1 - t }[colour] ?? t, 2), bar = make("i", low && high ? "both" : low ? "low" : "high");
  scaled = { limit };
  $("scale").replaceChildren(...(limit ? [back(low ? -limit : 0), bar, back(high ? limit : 0)] : ["0 everywhere"]), make("span", "says", says));
  if (colour === "ratio" && !limit) $("scale").firstChild.textContent = "1 everywhere";
  if (colour === "mask" && !limit) $("scale").firstChild.textContent = "all trained on";
}

// The numbers of the decision that is pointed at, or stepped to by the arrow keys.
function hideNumbers() {
  $("numbers").hidden = true;
  document.querySelector(".tokens .at")?.classList.remove("at");
}
function at(token, speak) {
  const { m } = token.closest(".tokens"), d = groupNow.details[m], i = Number(token.dataset.i);
  document.querySelector(".tokens .at")?.classList.remove("at");
  token.classList.add("at");
  const lines = Object.entries(quantities).map(([name, { of }]) => [name, of(d, groupNow.members[m])]).filter(([, list]) => list).map(([name, list]) => [name, number(list[i])]);
  if (d.part) lines.push(["part", PARTS[d.part[i]] ?? number(d.part[i])]);
  if (d.turn) lines.push(["turn", number(d.turn[i])]);
  const table = make("table"), box = $("numbers");
  for (const [name, value] of lines) {
    const line = table.appendChild(make("tr", name === colour ? "now" : ""));
    line.append(make("th", "", name), make("td", "", value));
  }
  box.replaceChildren(make("code", "", JSON.stringify(d.pieces[i])), ` decision ${i}`, table);
  box.hidden = false;
  const spot = token.getClientRects()[0] ?? token.getBoundingClientRect();
  const below = spot.bottom + box.offsetHeight + 12 < innerHeight;
  box.style.left = `${Math.max(4, Math.min(spot.left, innerWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${below ? spot.bottom + 6 : Math.max(4, spot.top - box.offsetHeight - 6)}px`;
  if (speak) $("spoken").textContent = `${visible(d.pieces[i])}: ` + lines.map((pair) => pair.join(" ")).join(", ");
}
// One listener for all decisions: there may be tens of thousands.
for (const kind of ["mouseover", "click"]) {
  $("group").addEventListener(kind, (event) => {
    if (event.target.matches(".tokens span[data-i]")) at(event.target, false);
    else if (kind === "mouseover") hideNumbers();
  });
}
$("group").addEventListener("mouseleave", hideNumbers);
$("group").addEventListener("focusout", hideNumbers);
document.addEventListener("scroll", hideNumbers, { passive: true, capture: true });
$("group").addEventListener("keydown", (event) => {
  if (event.key === "Escape") return hideNumbers();
  const text = event.target, by = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
  if (!text.matches(".tokens") || by === undefined) return;
  event.preventDefault();
  const all = [...text.querySelectorAll("span[data-i]")].filter((token) => !token.closest("details:not([open])")); // folded ones are skipped
  const next = all[Math.min(all.length - 1, Math.max(0, all.findIndex((token) => token.classList.contains("at")) + by))];
  next?.scrollIntoView({ block: "nearest" });
  if (next) requestAnimationFrame(() => at(next, true)); // after the scrolling, which hides the numbers
});
