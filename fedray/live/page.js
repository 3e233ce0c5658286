"use strict";
// Asks for the state, and draws it if it has changed. All text is set as text, never as HTML.
const COLOURS = "COLOURS";
const DASHES = ["", "7 4", "2 3", "9 3 2 3"]; // after the colours have been used once
const PARTS = [["trained", "#2f7fd1"], ["failed", "#d6536d"], ["dropped", "#8b949e"]]; // of a cohort
const MARGIN = { left: 52, right: 14, top: 8, bottom: 34 };
const token = new URLSearchParams(location.search).get("token") || "";
const at = (id) => document.getElementById(id);
let chosen = { metric: "", run: "" }, last = "", timer = 0, paused = false, state = null;

function make(name, attributes = {}, ...children) {
  const drawn = ["svg", "g", "path", "line", "rect", "text", "circle"].includes(name);
  const element = drawn ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== false) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function duration(seconds) {
  if (seconds < 100) return `${Math.round(seconds)} s`;
  return seconds < 6000 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

const plain = (value) => Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));

function ticks(low, high, count) { // round numbers from low to high
  const raw = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= raw);
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}

function frame(figure, title, unit, names) { // an empty figure, its svg, its size
  figure.replaceChildren(make("figcaption", {}, title));
  const width = Math.max(260, figure.clientWidth), height = 250;
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img", id: `svg-${figure.dataset.name}` });
  const output = make("output", { "aria-live": "polite" });
  figure.append(svg, output);
  return { svg, output, width, height };
}

function axes(svg, width, height, x, y, xTicks, yTicks) {
  for (const value of yTicks) {
    svg.append(make("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }));
    svg.append(make("text", { x: MARGIN.left - 8, y: y(value) + 4, "text-anchor": "end" }, plain(value)));
  }
  for (const value of xTicks) svg.append(make("text", { x: x(value), y: height - 16, "text-anchor": "middle" }, String(value)));
  svg.append(make("text", { x: width - MARGIN.right, y: height - 2, "text-anchor": "end" }, "round"));
}

function pointed(svg, output, width, height, x, rounds, words) { // the values at a round, by pointer and arrow keys
  let place = -1;
  const cross = make("line", { class: "cross", y1: MARGIN.top, y2: height - MARGIN.bottom, visibility: "hidden" });
  svg.append(cross);
  const show = (next) => {
    place = Math.max(0, Math.min(rounds.length - 1, next));
    cross.setAttribute("x1", x(rounds[place]));
    cross.setAttribute("x2", x(rounds[place]));
    cross.setAttribute("visibility", "visible");
    output.textContent = words(rounds[place]);
  };
  svg.addEventListener("pointermove", (event) => {
    const from = svg.getBoundingClientRect(), here = (event.clientX - from.left) * width / from.width;
    const far = rounds.map((round) => Math.abs(x(round) - here));
    show(far.indexOf(Math.min(...far)));
  });
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -rounds.length, End: rounds.length }[event.key];
    if (step) { event.preventDefault(); show(place < 0 ? rounds.length - 1 : place + step); }
  });
}

function curves(figure, title, lines) { // lines: {name, points, colour, dash, others}
  const known = lines.filter((line) => line.points.length);
  const { svg, output, width, height } = frame(figure, title);
  const points = known.flatMap((line) => line.points), values = points.map((point) => point[1]);
  const rounds = [...new Set(points.map((point) => point[0]))].sort((one, other) => one - other);
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (low === high) [low, high] = [low - 1, high + 1];
  const [first, end] = [rounds[0], Math.max(rounds[rounds.length - 1], rounds[0] + 1)];
  const x = (round) => MARGIN.left + (round - first) / (end - first) * (width - MARGIN.left - MARGIN.right);
  const y = (value) => height - MARGIN.bottom - (value - low) / (high - low) * (height - MARGIN.top - MARGIN.bottom);
  const whole = ticks(first, end, Math.max(2, width / 90)).filter(Number.isInteger);
  axes(svg, width, height, x, y, whole, ticks(low, high, 5));
  for (const line of known) {
    const path = line.points.map(([round, value], index) => `${index ? "L" : "M"}${x(round).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    svg.append(make("path", { class: line.others ? "line others" : "line", d: path, stroke: line.colour, "stroke-dasharray": line.dash || null }));
    if (line.points.length === 1) svg.append(make("circle", { cx: x(line.points[0][0]), cy: y(line.points[0][1]), r: 3, fill: line.colour }));
  }
  const one = known.find((line) => !line.others) || known[0], ends = [one.points[0], one.points[one.points.length - 1]];
  svg.setAttribute("aria-label", `${title}${known.length > 1 ? `, ${known.length} runs; ${one.name}` : ""}: ${plain(ends[0][1])} at round ${ends[0][0]}, ${plain(ends[1][1])} at round ${ends[1][0]}`);
  pointed(svg, output, width, height, x, rounds, (round) => `round ${round}: ` + known
    .map((line) => [line, line.points.find((point) => point[0] === round)]).filter(([, point]) => point)
    .slice(0, 6).map(([line, point]) => (known.length > 1 ? `${line.name} ` : "") + plain(point[1])).join(", "));
}

function cohorts(figure, title, rows) { // rows: [round, trained, failed, dropped]
  const { svg, output, width, height } = frame(figure, title);
  const parts = PARTS.filter((_, part) => !part || rows.some((row) => row[part + 1]));
  figure.firstChild.append(...parts.map(([name, colour]) => make("span", { class: "key" },
    make("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, make("rect", { width: 10, height: 10, fill: colour })), name)));
  const rounds = rows.map((row) => row[0]), most = Math.max(1, ...rows.map((row) => row[1] + row[2] + row[3]));
  const slot = (width - MARGIN.left - MARGIN.right) / rows.length, bar = Math.min(40, slot * 0.8);
  const x = (round) => MARGIN.left + (rounds.indexOf(round) + 0.5) * slot;
  const y = (value) => height - MARGIN.bottom - value / most * (height - MARGIN.top - MARGIN.bottom);
  const every = Math.ceil(rows.length / Math.max(2, width / 60));
  axes(svg, width, height, x, y, rounds.filter((_, index) => index % every === 0), ticks(0, most, 4).filter(Number.isInteger));
  for (const row of rows) {
    let below = 0;
    PARTS.forEach(([, colour], part) => {
      const count = row[part + 1];
      if (count) svg.append(make("rect", { x: x(row[0]) - bar / 2, width: bar, y: y(below + count), height: y(below) - y(below + count), fill: colour }));
      below += count;
    });
  }
  const words = (round) => {
    const row = rows[rounds.indexOf(round)];
    return `round ${round}: ` + PARTS.map(([name], part) => `${row[part + 1]} ${name}`).filter((_, part) => !part || row[part + 1]).join(", ");
  };
  svg.setAttribute("aria-label", `${title}; ${words(rounds[rounds.length - 1])}`);
  output.textContent = words(rounds[rounds.length - 1]);
  pointed(svg, output, width, height, x, rounds, words);
}

function look(index) { return { colour: COLOURS[index % COLOURS.length], dash: DASHES[Math.floor(index / COLOURS.length) % DASHES.length] }; }

function figures() {
  const { runs, run, metric } = state, several = runs.length > 1, name = runs[run.index].name;
  const of = several ? ` of ${name}` : "", own = look(run.index);
  const wanted = [];
  const order = runs.map((_, index) => index).sort((one, other) => (one === run.index) - (other === run.index)); // the chosen one on top
  if (state.curves.some((points) => points.length)) wanted.push(["metric", (figure) => curves(figure, metric.title,
    order.map((index) => ({ name: runs[index].name, points: state.curves[index], others: index !== run.index, ...look(index) })))]);
  if (run.loss.length && metric.name !== "train/loss") wanted.push(["loss", (figure) => curves(figure, `Training loss${of}`, [{ name, points: run.loss, ...own }])]);
  if (run.cohort.length) wanted.push(["cohort", (figure) => cohorts(figure, `Cohort of each round${of}`, run.cohort)]);
  if (run.seconds.length) wanted.push(["seconds", (figure) => curves(figure, `Seconds per round${of}`, [{ name, points: run.seconds, ...own }])]);
  const made = wanted.map(([id]) => make("figure", { "data-name": id }));
  at("figures").replaceChildren(...made);
  wanted.forEach(([, draw], place) => draw(made[place]));
  at("curves").textContent = wanted.length ? "Curves" : "No curves yet: the first round has not ended";
}

function table() {
  const { runs, run } = state;
  at("overview").hidden = runs.length < 2;
  at("runs").replaceChildren(...runs.map((row, index) => {
    const { colour, dash } = look(index);
    const key = make("svg", { viewBox: "0 0 22 12", "aria-hidden": "true" }, make("line", { x1: 0, x2: 22, y1: 6, y2: 6, stroke: colour, "stroke-width": 3, "stroke-dasharray": dash || null }));
    const button = make("button", { type: "button", id: `run-${index}` }, row.name);
    button.addEventListener("click", () => { chosen.run = row.name; ask(); });
    const first = make("td", {}, key, button, ...(row.label ? [make("span", { class: "settings" }, row.label)] : []));
    const cells = [row.state, row.rounds === null ? row.round : `${row.round} of ${row.rounds}`, row.newest, row.best, row.failed, row.left === null ? "" : duration(row.left)];
    return make("tr", { "aria-current": index === run.index && "true" }, first, ...cells.map((cell) => make("td", {}, String(cell))));
  }));
}

function edits(words) {
  return words.flatMap(([kind, said, heard]) => [...{
    same: () => [said], deleted: () => [make("del", {}, said)], inserted: () => [make("ins", { class: "extra" }, heard)],
    substituted: () => [make("del", {}, said), " ", make("ins", {}, heard)],
  }[kind](), " "]);
}

function heard() {
  const { heard, first } = state.run, rows = heard ? heard.rows : [];
  const line = (role, ...words) => make("p", {}, make("span", { class: "role" }, role), " ", ...words);
  at("heard-note").textContent = rows.length ? `Of dev, after round ${heard.round}, by greedy search. Struck out: deleted or replaced. Red: heard in its place; underlined: inserted.`
    : "None: they appear once the model has been scored on dev. A run without dev has none.";
  at("utterances").replaceChildren(...rows.map((row) => make("div", { class: "utterance" },
    make("p", { class: "who" }, `${row.utterance} · ${row.speaker}`), line("reference", row.reference),
    line(heard.round ? `round ${heard.round}` : first, ...edits(row.now)), ...(row.before ? [line(first, ...edits(row.before))] : []))));
}

function failures() {
  const { failures } = state.run, all = state.runs[state.run.index].failed;
  at("failed-note").textContent = all ? `${all} failed so far. failures.jsonl has all, with tracebacks.` : "No client has failed.";
  at("failed-table").hidden = !failures.length;
  at("failures").replaceChildren(...failures.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, String(cell))))));
}

function words() { // what the state says in a line
  const { runs, run } = state, row = runs[run.index];
  const parts = [row.state, row.rounds === null ? `round ${row.round}` : `round ${row.round} of ${row.rounds}`];
  if (row.newest) parts.push(`${state.metric.short} ${row.newest}${row.best && row.best !== row.newest ? `, best ${row.best}` : ""}`);
  if (row.left !== null && row.left !== undefined) parts.push(row.left > 0 ? `about ${duration(row.left)} left, and the final scores` : "final scores");
  if (row.changed) parts.push(`newest round ended at ${new Date(row.changed * 1000).toLocaleTimeString()}`);
  return (runs.length > 1 ? `${runs.filter((one) => one.state === "running").length} of ${runs.length} runs are running. ${row.name}: ` : "") + parts.join(" · ");
}

function draw() {
  const focus = document.activeElement && document.activeElement.id, row = state.runs[state.run.index];
  at("title").textContent = state.runs.length > 1 ? `${state.runs.length} runs` : row.name;
  document.title = `${row.state === "running" && row.rounds ? `${row.round}/${row.rounds} ` : ""}${at("title").textContent} · fedray`;
  at("metric").replaceChildren(...state.metrics.map((one) => make("option", { value: one.name, selected: one.name === state.metric.name }, one.title)));
  at("metric").parentElement.hidden = !state.metrics.length;
  at("problem").textContent = row.problem;
  at("problem").hidden = !row.problem;
  at("facts").replaceChildren(...state.run.facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  for (const part of [table, figures, heard, failures]) part();
  if (focus && at(focus)) at(focus).focus({ preventScroll: true });
}

function tell(text) { if (at("status").textContent !== text) at("status").textContent = text; }

async function ask() {
  clearTimeout(timer);
  let wait = 5;
  try {
    const answer = await fetch("state.json?" + new URLSearchParams({ token, ...chosen }));
    const found = answer.ok ? await answer.json() : { error: await answer.text() };
    if (found.error) throw new Error(found.error);
    wait = found.wait;
    delete found.wait;
    state = found;
    if (JSON.stringify(found) !== last) { last = JSON.stringify(found); draw(); }
    tell(words());
  } catch (error) {
    tell(error instanceof TypeError ? "fedray watch --web does not answer: it has ended, or the machine is busy" : error.message);
  }
  timer = setTimeout(() => (document.hidden || paused ? null : ask()), wait * 1000);
}

at("metric").addEventListener("change", (event) => { chosen.metric = event.target.value; ask(); });
at("pause").addEventListener("click", (event) => {
  paused = !paused;
  event.target.setAttribute("aria-pressed", String(paused));
  event.target.textContent = paused ? "Continue" : "Pause";
  if (!paused) ask();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused) ask(); });
let width = innerWidth;
addEventListener("resize", () => { if (state && innerWidth !== width) { width = innerWidth; figures(); } });
ask();
