// A rollout of several turns as one reads it: who said what, calls of tools with their arguments, answers with their seconds.
// Its decisions, with all their numbers, are the other view of it (rollouts.js).
const LONG = 400; // characters of an answer that is folded
const CLOSES = 8; // brackets that are tried as the end of a call: more are no call, and would hold up the page
const MARK = /(<eos>|<\/s>|<\|[\w.]+\|>)$/;
let reading = true; // conversations, where there are turns; else decisions

// A turn without what templates write around it.
function bare(text) {
  let said = text.replaceAll(/<\|im_start\|>\w*\n?/g, "").replace(/^(<\|[\w.]+\|>)+/, "").trimEnd();
  for (let mark = MARK.exec(said); mark; mark = MARK.exec(said)) said = said.slice(0, mark.index).trimEnd();
  return said;
}

// [what stands before it, the call or null] of a turn, in order; a call that cannot be read has ``wrong``. As environments/calls.py
// reads them: what stands between the brackets is JSON, so a bracket in a string ends nothing.
function calls(text) {
  const found = [];
  let from = 0;
  for (let open = text.indexOf("<tool_call>"); open >= 0; open = text.indexOf("<tool_call>", from)) {
    const begin = open + "<tool_call>".length;
    let close = text.indexOf("</tool_call>", begin), call = null;
    for (let at = close, tried = 0; at >= 0 && !call && tried < CLOSES; at = text.indexOf("</tool_call>", at + 1), tried++) {
      call = callOf(text.slice(begin, at));
      if (call) close = at;
    }
    const end = close < 0 ? text.length : close + "</tool_call>".length;
    found.push([text.slice(from, open), call ?? { wrong: text.slice(open, end) }]);
    from = end;
  }
  found.push([text.slice(from), null]);
  return found;
}

// The call that this JSON is, or null.
function callOf(json) {
  try {
    const { name, arguments: said = {} } = JSON.parse(json), given = typeof said === "string" ? JSON.parse(said) : said;
    return typeof name === "string" && given && typeof given === "object" && !Array.isArray(given) ? { name, given } : null;
  } catch {
    return null; // no JSON, or nested too deeply
  }
}

function callNode({ name, given, wrong }) {
  const node = make("div", wrong === undefined ? "call" : "call wrong");
  if (wrong !== undefined) {
    node.append(make("b", "", "a call that cannot be read"), make("pre", "", visible(wrong)));
    return node;
  }
  node.append(make("b", "", visible(name)));
  for (const [key, value] of Object.entries(given)) {
    const shown = typeof value === "string" ? visible(value).replaceAll("⏎", "") : JSON.stringify(value);
    const line = node.appendChild(make("div", "argument"));
    line.append(make("i", "", visible(key)), make("pre", "", shown));
  }
  return node;
}

// Decisions first to end of the group's m-th member, turn by turn.
function talkNode(m, first, end) {
  const d = groupNow.details[m], node = make("div", "talk"), parts = segments(d, first, end);
  const did = new Map((d.acts ?? []).map(([turn, count, failed], i) => [turn, { count, failed, seconds: d["time/acts"]?.[i] }]));
  for (const { turn, part, from, to } of parts) {
    const said = bare(d.pieces.slice(from, to).join("")), answers = part === OBSERVATION, act = did.get(turn) ?? {};
    const failed = answers && act.failed > 0, fold = node.appendChild(make("details", answers ? (failed ? "answer failed" : "answer") : "turn"));
    const head = fold.appendChild(make("summary")), told = [];
    if (answers && act.seconds !== undefined) told.push(`${number(act.seconds, 2)} s`);
    if (failed) told.push(act.count > 1 ? `${act.failed} of ${act.count} calls failed` : "the call failed");
    head.append(make("b", "", answers ? (act.count ? "tool" : "environment") : d.role || "policy"), ` turn ${turn} `, make("span", "told", told.join(", ")), " ");
    head.append(make("span", "preview", said.replaceAll(/\s+/g, " ").slice(0, 80)));
    for (const [before, call] of answers ? [[said, null]] : calls(said)) {
      if (before.trim()) fold.append(make("div", "said", visible(before.trim()).replaceAll("⏎", "")));
      if (call) fold.append(callNode(call));
    }
    fold.open = failed || !answers || said.length <= LONG;
  }
  return node;
}
