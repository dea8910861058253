"use strict";
// Choose rollouts: the address after # holds the filters, so that a link shows the same rollouts again.

const CHOICES = [
  ["run", "all runs", row => String(row.run)],
  ["mode", "training and validation", row => modeOf(row)],
  ["mark", "right and wrong", row => row.mark],
  ["change", "changed and unchanged", row => row.change],
  ["failure", "all causes", row => row.failure],
  ["type", "all types", row => row.question && row.question.task_type],
  ["outcome", "all outcomes", row => (row.dropped ? `dropped: ${row.dropped}` : row.outcome)],
  ["lang", "all languages", row => row.question && row.question.lang],
];
const RANGES = [["step", row => row.step], ["reward", row => row.reward]];
const ORDERS = {
  "in order": null,
  "reward, highest first": (a, b) => (b.reward ?? -1) - (a.reward ?? -1),
  "reward, lowest first": (a, b) => (a.reward ?? 9) - (b.reward ?? 9),
  "advantage, highest first": (a, b) => (b.advantage ?? -99) - (a.advantage ?? -99),
  "most queries first": (a, b) => b.queries - a.queries,
  "most tokens first": (a, b) => b.tokens - a.tokens,
  "slowest first": (a, b) => b.seconds - a.seconds,
};

const modeOf = row => (row.set ? `${row.mode}: ${row.set}` : row.mode);
/** Return why an answer was wrong in the reader's language; the kind of an error stays. */
function causeOf(failure) {
  const [cause, kind] = failure.replaceAll("_", " ").split(": ");
  return kind ? `${t(cause)}: ${kind}` : t(cause);
}

const state = new URLSearchParams(location.hash.slice(1));

/** Change parts of the state; an empty value removes one. */
function setState(changes) {
  for (const [key, value] of Object.entries(changes)) {
    if (value === "" || value === null || value === undefined) state.delete(key);
    else state.set(key, value);
  }
  history.replaceState(null, "", `#${state}`);
}

/** Return the rows that the choices and ranges of the state leave, in the order that it asks for. */
function chosenRows(rows) {
  const wanted = CHOICES.filter(([key]) => state.has(key)).map(([key, , value]) => [value, state.get(key)]);
  const limits = RANGES.map(([key, value]) => [value, bound(`${key}_from`, -Infinity), bound(`${key}_to`, Infinity)])
    .filter(([, from, to]) => from > -Infinity || to < Infinity);
  const found = rows.filter(row =>
    wanted.every(([value, choice]) => value(row) === choice) &&
    limits.every(([value, from, to]) => value(row) !== null && value(row) >= from && value(row) <= to));
  const order = ORDERS[state.get("order")];
  return order ? found.sort((a, b) => order(a, b) || a.number - b.number) : found;
}

function bound(key, otherwise) {
  const value = parseFloat(state.get(key));
  return Number.isNaN(value) ? otherwise : value;
}

/** Return a form of all filters; `changed` is called after each change. */
function filterForm(report, changed) {
  const set = (key, value) => { setState({ [key]: value }); changed(); };
  const search = el("input", {
    type: "search", id: "search", value: state.get("text") || "", placeholder: t("search question, SQL, rows, answer ( / )"),
    ariaLabel: t("search"), oninput: event => set("text", event.target.value),
  });
  const selects = CHOICES.map(([key, all, value]) => {
    const names = [...new Set(report.rows.map(value))].filter(name => name !== null && name !== undefined).sort();
    if (names.length < (key === "change" ? 1 : 2) && !state.has(key)) return null;
    return select(key, all, names.map(name => [name, key === "run" ? runLabel(report, Number(name)) : key === "failure" ? causeOf(name) : t(name)]), set);
  });
  const ranges = RANGES.map(([key]) => el("span.range", {}, t(key), range(`${key}_from`, "≥", set), range(`${key}_to`, "≤", set)));
  const order = select("order", null, Object.keys(ORDERS).map(name => [name, t(name)]), set);
  return el("form.filters", { role: "search", onsubmit: event => event.preventDefault() },
    search, el("details.more", { open: innerWidth > 760 }, el("summary", {}, t("filters")), el("div", {}, selects, ranges, order)));
}

function select(key, all, options, set) {
  const made = el("select", { id: `filter-${key}`, ariaLabel: t(key), onchange: event => set(key, event.target.value) },
    all === null ? null : el("option", { value: "" }, t(all)),
    options.map(([value, label]) => el("option", { value }, label)));
  made.value = state.get(key) ?? (all === null ? options[0][0] : "");
  return made;
}

function range(key, sign, set) {
  return el("input", { type: "number", step: "any", id: `filter-${key}`, placeholder: sign, ariaLabel: `${key} ${sign}`, value: state.get(key) || "", oninput: event => set(key, event.target.value) });
}

function runLabel(report, run) {
  return report.runs.length > 1 ? `${LETTERS[run]} ${report.runs[run].name}` : report.runs[run].name;
}

/** Save each question of `rows` once, as a question file. */
function saveQuestions(rows) {
  const questions = new Map(rows.filter(row => row.question).map(row => [row.question.id, row.question]));
  const url = URL.createObjectURL(new Blob([...questions.values()].map(question => `${JSON.stringify(question)}\n`), { type: "application/jsonl" }));
  el("a", { href: url, download: "questions.jsonl" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

let searches = 0;

/** Search the text of `rows` for all words of the state, block by block; calls `found(rows, share)` as it goes. */
async function searchText(report, rows, found) {
  const number = ++searches;
  const words = (state.get("text") || "").toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return found(rows, 1);
  const matches = new Set();
  const blocks = grouped(rows, row => `${row.run}-${Math.floor(row.index / report.runs[row.run].block_size)}`);
  let done = 0;
  for (const [key, members] of blocks) {
    const records = await (report.blocks.get(key) || readBlock(key)); // not kept: a search reads all of them
    if (number !== searches) return; // the words have changed
    for (const row of members) {
      const text = searchable(row, records[row.index % report.runs[row.run].block_size]);
      if (words.every(word => text.includes(word))) matches.add(row);
    }
    if (++done % 10 === 0 || done === blocks.size) found(rows.filter(row => matches.has(row)), done / blocks.size);
  }
  if (!blocks.size) found([], 1);
}

/** Return all that a person could look for in a rollout, in lower case. */
function searchable(row, record) {
  const parts = row.question ? [row.question.id, row.question.question, row.question.answer] : [row.group];
  for (const { sql, answer } of record.calls || []) {
    parts.push(sql, answer.hint, answer.error && `${answer.error.kind} ${answer.error.message}`);
    for (const cells of answer.records || []) parts.push(...cells);
  }
  for (const reply of record.replies || []) parts.push(reply.text, reply.reasoning);
  parts.push(record.answer, record.reward && record.reward.reason, record.dropped && record.dropped.detail);
  return parts.filter(part => part !== null && part !== undefined).join("\n").toLowerCase();
}
