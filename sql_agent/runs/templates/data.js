"use strict";
// Read the data: an index at once, and the records in blocks that are decompressed when they are needed.

const LIVE = "live" in document.documentElement.dataset;
const KEPT_BLOCKS = 12;
const LETTERS = "ABCDEFGH"; // the names of compared runs

/** Decompress gzip in base64 to text. */
async function unpack(base64) {
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

/** Holds the page's data, a row for each rollout, and the records of the blocks that were read last. */
class Report {
  constructor(page) {
    this.page = page;
    this.runs = page.runs;
    this.rows = rowsOf(page);
    this.blocks = new Map();
    this.byGroup = grouped(this.rows, row => groupKey(row));
    this.byQuestion = grouped(this.rows.filter(row => row.question), row => questionKey(row.question));
    markChanges(this);
  }

  static async embedded() {
    return new Report(JSON.parse(await unpack(document.getElementById("data").textContent)));
  }

  /** Return the rollouts of the group of `row`, best first. */
  groupOf(row) {
    return [...this.byGroup.get(groupKey(row))].sort((a, b) => (b.reward ?? -1) - (a.reward ?? -1));
  }

  /** Return the step of the last validation of a run; 0 for an evaluation. */
  lastValidation(run) {
    return this.rows.reduce((step, row) => (row.run === run && row.mode !== "train" ? Math.max(step, row.step) : step), 0);
  }

  /** Return all rollouts of the question of `row`, by step and run. */
  sameQuestion(row) {
    const found = row.question ? this.byQuestion.get(questionKey(row.question)) : [row];
    return [...found].sort((a, b) => a.step - b.step || a.run - b.run || a.number - b.number);
  }

  /** Return the record of `row`. */
  async record(row) {
    const size = this.runs[row.run].block_size;
    return (await this.block(row.run, Math.floor(row.index / size)))[row.index % size];
  }

  /** Return the records of a block. */
  async block(run, number) {
    const key = `${run}-${number}`;
    if (!this.blocks.has(key)) {
      this.blocks.set(key, readBlock(key));
      if (this.blocks.size > KEPT_BLOCKS) this.blocks.delete(this.blocks.keys().next().value);
    }
    return this.blocks.get(key);
  }
}

async function readBlock(key) {
  const text = LIVE
    ? await (await fetch(`block/${key}`, { headers: authorization() })).text()
    : await unpack(document.getElementById(`block-${key}`).textContent);
  return text.split("\n").map(line => JSON.parse(line));
}

function rowsOf(page) {
  const rows = [];
  page.runs.forEach((run, number) => {
    const { question, ...columns } = run.columns;
    const names = Object.keys(columns);
    for (let index = 0; index < columns.step.length; index++) {
      const row = { run: number, index, number: rows.length, question: run.questions[question[index]] || null };
      for (const name of names) row[name] = columns[name][index];
      row.mark = row.reward === null ? "dropped" : row.judge >= page.accurate ? "right" : "wrong";
      rows.push(row);
    }
  });
  return rows;
}

/** Say for each last validation or evaluation of a later run how it differs from that of the first. */
function markChanges(report) {
  if (report.runs.length < 2) return;
  const last = report.runs.map((_, run) => report.lastValidation(run));
  const asked = report.rows.filter(row => row.mode !== "train" && row.step === last[row.run] && row.reward !== null);
  const first = new Map(asked.filter(row => row.run === 0).map(row => [pairKey(row), row]));
  for (const row of asked.filter(each => each.run > 0)) {
    const before = first.get(pairKey(row));
    if (before) row.change = before.mark === row.mark ? `both ${row.mark}` : `became ${row.mark}`;
  }
}

const groupKey = row => `${row.run} ${row.mode} ${row.step} ${row.set} ${row.group}`;
const questionKey = question => `${question.id}\n${question.question}\n${question.answer}`;
const pairKey = row => `${row.set}\n${questionKey(row.question)}`;

function grouped(rows, key) {
  const groups = new Map();
  for (const row of rows) {
    const name = key(row);
    if (groups.has(name)) groups.get(name).push(row);
    else groups.set(name, [row]);
  }
  return groups;
}
