"use strict";
// Show what a run or an evaluation was, its tables and its curves.

function overview(report) {
  const { page, runs } = report;
  return el("div.overview", {},
    runs.map(run => alarmsOf(run, runs.length > 1)),
    el("div.tables", {}, page.tables.map(table => figureTable(table, report)), failureTable(report), runs.length > 1 ? [facts(runs), differences(runs)] : null),
    (page.folded || []).map(table => el("details", {}, el("summary", {}, t(table.title)), figureTable({ ...table, title: "" }, report))),
    runs.length > 1 ? null : facts(runs),
    el("div.charts", {}, mergedCharts(runs).map(chart)),
    runs.map(run => droppedTable(run, runs.length > 1)),
    runs.map(run => el("details", {}, el("summary", {}, `${t("Settings")}${runs.length > 1 ? `: ${run.name}` : ""}`), el("pre", {}, JSON.stringify(run.config, null, 2)))));
}

function alarmsOf({ alarms, name }, named) {
  if (!alarms || !alarms.length) return null;
  return el("section.alarms", { role: "alert" }, el("b", {}, t("Look at the rollouts: the reward may go wrong."), named ? ` ${name}` : ""),
    el("ul", {}, alarms.map(alarm => el("li", {}, t(alarm.text, alarm.values)))));
}

/** Return how many answers were wrong in training and in the last validation, by cause; a number leads to its rollouts. */
function failureTable(report) {
  const last = report.runs.map((_, run) => report.lastValidation(run));
  const wrong = report.rows.filter(row => row.failure && (row.mode === "train" || row.step === last[row.run]));
  const place = row => [report.runs.length > 1 ? LETTERS[row.run] : "", t(row.mode), row.mode === "val" ? t("step {step}", { step: row.step }) : ""].filter(Boolean).join(" ");
  const places = [...grouped(wrong, place).entries()].sort();
  const causes = [...grouped(wrong, row => row.failure)].sort((a, b) => b[1].length - a[1].length);
  if (!causes.length) return null;
  const cell = (failure, rows) => {
    if (!rows.length) return el("td", {}, "–");
    const [run, ...others] = new Set(rows.map(row => String(row.run)));
    const modes = new Set(rows.map(modeOf));
    const choices = { failure, run: report.runs.length > 1 && !others.length ? run : "", mode: modes.size === 1 ? [...modes][0] : "", step_from: rows[0].mode === "val" ? rows[0].step : "", step_to: rows[0].mode === "val" ? rows[0].step : "" };
    return el("td", {}, el("button", { type: "button", title: t("show them"), onclick: () => { setState(choices); show("rollouts"); } }, String(rows.length)));
  };
  return el("section", {}, el("h2", {}, t("Why answers were wrong")), el("div.wide", {}, el("table.numbers", {},
    el("thead", {}, el("tr", {}, el("th"), places.map(([name]) => el("th", {}, name)))),
    el("tbody", {}, causes.map(([failure]) => el("tr", {}, el("th", {}, causeOf(failure)), places.map(([, rows]) => cell(failure, rows.filter(row => row.failure === failure)))))))));
}

function facts(runs) {
  if (runs.length === 1) {
    return el("dl.facts", {}, runs[0].facts.map(([name, value]) => el(value.length > 70 ? "div.long" : "div", {}, el("dt", {}, t(name)), el("dd", {}, t(value)))));
  }
  const names = [...new Set(runs.flatMap(run => run.facts.map(fact => fact[0])))];
  const values = runs.map(run => new Map(run.facts));
  return el("section", {}, el("h2", {}, t("What is compared")), el("table.compared", {},
    el("thead", {}, el("tr", {}, el("th"), runs.map((run, i) => el("th", {}, `${LETTERS[i]} ${run.name}`)))),
    el("tbody", {}, names.map(name => comparedRow(t(name), values.map(of => t(of.get(name) ?? "–")))))));
}

function comparedRow(name, values) {
  const differs = new Set(values).size > 1;
  return el(differs ? "tr.differs" : "tr", {}, el("th", {}, name), values.map(value => el("td", {}, value)));
}

/** Return a table of the settings in which runs differ. */
function differences(runs) {
  const flat = runs.map(run => new Map(flattened(run.config)));
  const names = [...new Set(flat.flatMap(of => [...of.keys()]))].filter(name => new Set(flat.map(of => of.get(name))).size > 1);
  if (!names.length) return null;
  return el("section", {}, el("h2", {}, t("Settings that differ")), el("div.wide", {}, el("table.compared", {},
    el("thead", {}, el("tr", {}, el("th"), runs.map((_, i) => el("th", {}, LETTERS[i])))),
    names.map(name => el("tr", {}, el("th", {}, name), flat.map(of => el("td", {}, of.get(name) ?? "–")))))));
}

function flattened(value, prefix = "") {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return [[prefix, JSON.stringify(value)]];
  return Object.entries(value).flatMap(([key, each]) => flattened(each, prefix ? `${prefix}.${key}` : key));
}

const LONG_NAME = 24; // characters
const SHARE = /^([\d.]+) % \[([\d.]+), ([\d.]+)\]$/; // as evaluation/tables.py writes a share with its interval
const INTERVAL = /^(\S+) (\[.*\])$/; // of another figure
const CHANGES = ["became right", "became wrong"];

/** Return a cell: a share with its interval is drawn too, and how many answers changed leads to them. */
function figureCell(name, text, report) {
  const share = text.match(SHARE);
  if (share) return el("td", {}, `${share[1]} % `, el("span.note", {}, `[${share[2]}, ${share[3]}]`), intervalBar(...share.slice(1).map(Number)));
  if (CHANGES.includes(name) && report.rows.some(row => row.change === name)) {
    return el("td", {}, el("button", { type: "button", title: t("show them"), onclick: () => { setState({ change: name, tab: "beside" }); show("rollouts"); } }, text));
  }
  const interval = text.match(INTERVAL);
  return interval ? el("td", {}, `${interval[1]} `, el("span.note", {}, interval[2])) : el("td", {}, text);
}

/** Draw a share and its interval, in percent, on a bar from 0 to 100. */
function intervalBar(value, low, high) {
  const bar = el("span.interval", { ariaHidden: "true" }, el("i"), el("b"));
  Object.assign(bar.firstChild.style, { left: `${low}%`, width: `${high - low}%` });
  bar.lastChild.style.left = `${value}%`;
  return bar;
}

/** Return `text` with a letter in place of each long name of a run, because long names push columns off the page. */
function lettered({ runs }, text) {
  if (runs.length < 2) return text;
  const own = runs.findIndex(run => run.name === text);
  if (own >= 0) return text.length > LONG_NAME ? LETTERS[own] : `${LETTERS[own]} ${text}`;
  return runs.reduce((written, { name }, i) => (name.length > LONG_NAME ? written.replaceAll(name, LETTERS[i]) : written), text);
}

function figureTable({ title, columns, sections, note }, report) {
  return el("section", {}, title ? el("h2", {}, translated(lettered(report, title))) : null,
    columns.length ? el("div.wide", {}, el(columns.length > 1 ? "table.numbers.many" : "table.numbers", {},
      el("thead", {}, el("tr", {}, el("th"), columns.map(name => el("th", { title: name }, translated(lettered(report, name)))))),
      sections.filter(rows => rows.length).map(rows => el("tbody", {}, rows.map(([name, texts]) =>
        el("tr", {}, el("th", {}, translated(name)), texts.map(text => figureCell(name, text, report)))))))) : null,
    note ? el("p.note", {}, t(note)) : null);
}

/** Translate a heading such as "natural, step 8" or "accurate: two hops", in whole or by its parts. */
function translated(text) {
  if (t(text) !== text) return t(text);
  const run = text.match(/^([AB]) (.*)$/);
  if (run) return `${run[1]} ${translated(run[2])}`;
  const step = text.match(/^(.*), step (\d+)$/);
  if (step) return `${t(step[1])}, ${t("step {step}", { step: step[2] })}`;
  const set = text.match(/^(\w+): (questions|with a successful query)$/);
  if (set) return `${t(set[1])}: ${t(set[2])}`;
  const kind = text.match(/^accurate: (.*)$/);
  return kind ? `${t("accurate")}: ${t(kind[1])}` : text;
}

/** Return the charts of all runs, those of the same title as one; the curves of later runs are dashed. */
function mergedCharts(runs) {
  const merged = new Map();
  runs.forEach((run, number) => {
    for (const { title, unit, curves } of run.charts) {
      if (!merged.has(title)) merged.set(title, { title, unit, curves: [] });
      merged.get(title).curves.push(...curves.map(curve => ({ ...curve, run: number, tag: runs.length > 1 ? LETTERS[number] : "" })));
    }
  });
  return [...merged.values()];
}

function droppedTable(run, named) {
  if (!run.columns.step.length) return null;
  return el("section", {}, el("h2", {}, t("Dropped rollouts"), named ? `: ${run.name}` : ""),
    run.dropped.length
      ? el("div.wide", {}, el("table", {}, run.dropped.map(([reason, count]) => el("tr", {}, el("td.score", {}, String(count)), el("td", {}, reason)))))
      : el("p.note", {}, t("None of {n} rollouts was dropped.", { n: run.columns.step.length })));
}
