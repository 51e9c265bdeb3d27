// What all parts of the page share. Everything a model wrote reaches the page through textContent alone.
const $ = (id) => document.getElementById(id);
const make = (tag, className, text) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};
const number = (x, digits = 4) => {
  if (x === null || x === undefined) return "–";
  if (Number.isInteger(x)) return (x || 0).toLocaleString("en");
  return Math.abs(x) < 1e-3 ? x.toExponential(digits - 1).replace(/\.?0+e/, "e") : Number(x.toPrecision(digits)).toString();
};
const signed = (x, digits) => (x > 0 ? "+" : "") + number(x, digits);
const duration = (seconds) => {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
};
const colours = ["#2f7fd0", "#d97a1d", "#3f9b57", "#c0504d", "#8a6bc5", "#9a7b5a", "#c45b9b", "#7b848d", "#8f8f2b", "#1f97a6"];
const colourOf = (i) => colours[i % colours.length];

// Base64 of gzip of JSON, as the page carries its data.
async function unpack(id) {
  const bytes = Uint8Array.from(atob($(id).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// What the page shows: the runs (as page.py describes them) and the index of their rollouts, one object a rollout.
const state = { runs: [], conclusion: "", differs: [], rollouts: [], recorded: 0, marks: [], live: false };

// Runs that differ in their seed only are one family: one colour, one line of the board, one band.
const families = () => {
  const found = new Map();
  state.runs.forEach((run, i) => {
    if (!found.has(run.family)) found.set(run.family, []);
    found.get(run.family).push(i);
  });
  return [...found.values()];
};
const runColour = (i) => colourOf(families().length > 1 ? state.runs[i].family : i);

// A sorted table: columns are {name, of(row), shown(row) -> text or node, text: true for words}. A click on a heading sorts.
function sortable(columns, rows, by = null, down = true) {
  const wrap = make("div", "scroll"), table = wrap.appendChild(make("table"));
  const heads = table.appendChild(make("thead")).appendChild(make("tr")), body = table.appendChild(make("tbody"));
  const fill = () => {
    const ordered = by === null ? rows : rows.toSorted((a, b) => compare(columns[by].of(a), columns[by].of(b)) * (down ? -1 : 1));
    body.replaceChildren(...ordered.map((row) => {
      const line = make("tr");
      columns.forEach((column, i) => {
        const cell = line.appendChild(make(i ? "td" : "th", column.text ? "words" : ""));
        if (!i) cell.scope = "row";
        const shown = column.shown ? column.shown(row) : number(column.of(row));
        cell.append(shown);
      });
      return line;
    }));
    [...heads.children].forEach((head, i) => {
      head.setAttribute("aria-sort", i !== by ? "none" : down ? "descending" : "ascending");
      head.firstChild.dataset.sort = i !== by ? "" : down ? "down" : "up";
    });
  };
  columns.forEach((column, i) => {
    const head = heads.appendChild(make("th", column.text ? "words" : "")), button = head.appendChild(make("button", "sort", column.name));
    head.scope = "col";
    button.type = "button";
    button.addEventListener("click", () => {
      down = by === i ? !down : !column.text;
      by = i;
      fill();
    });
  });
  fill();
  return wrap;
}
// What is not known comes first from below, so last from above.
const compare = (a, b) => {
  const [none, other] = [a === null || a === undefined, b === null || b === undefined];
  if (none || other) return other - none;
  return typeof a === "string" ? a.localeCompare(b) : a - b;
};
