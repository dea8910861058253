"use strict";
// Show rollouts side by side: those of a group with their advantages, and those of a question across steps and runs.

const CARDS = 60; // at once; a button shows more

/** Return the rollouts of the group of `row` side by side. */
async function groupView(report, row, open) {
  const rows = report.groupOf(row);
  return el("div", {}, el("p.note", {}, t("The rollouts whose rewards are compared, best first.")), await cards(report, rows, row, open));
}

/** Return all rollouts of the question of `row`: their rewards by step, and side by side. */
async function sameQuestionView(report, row, open) {
  const rows = report.sameQuestion(row);
  const curves = [];
  for (const [, members] of grouped(rows.filter(each => each.reward !== null), each => `${each.run} ${each.mode} ${each.set}`)) {
    const [one] = members;
    const points = [...grouped(members, each => each.step)].map(([step, at]) => [step, at.reduce((sum, each) => sum + each.reward, 0) / at.length]);
    if (points.length > 1) curves.push({ label: one.set ? `validation, ${one.set}` : one.mode, tag: report.runs.length > 1 ? "ABCDEFGH"[one.run] : "", run: one.run, points });
  }
  return el("div", {}, curves.length ? chart({ title: "Reward on this question", unit: "mean of a step (0–1.1)", curves }) : null, await cards(report, rows, row, open));
}

async function cards(report, rows, current, open) {
  const grid = el("div.cards");
  async function add(from) {
    const shown = rows.slice(from, from + CARDS);
    const records = await Promise.all(shown.map(row => report.record(row)));
    grid.append(...shown.map((row, i) => card(report, row, records[i], row === current, open)));
    const left = rows.length - from - shown.length;
    if (left > 0) {
      const more = el("button", { type: "button", onclick: () => { more.remove(); add(from + CARDS); } }, t("{n} more", { n: left }));
      grid.append(more);
    }
  }
  await add(0);
  return grid;
}

function card(report, row, record, current, open) {
  const texts = evidenceTexts(row.question);
  const queries = (record.calls || []).map(({ sql, answer }) => el("li", {}, el("pre.sql", {}, sqlNodes(sql)),
    answer.error ? el("span.bad", {}, answer.error.kind) : el("span.note", {}, counted(answer.count, "{n} rows"))));
  return el(`article.card.${row.mark}${current ? ".current" : ""}`, {},
    el("button.head", { type: "button", onclick: () => open(row) }, el("b.score", {}, figure(row.reward, 2)),
      row.advantage === null ? null : [el("span.note", {}, t("advantage")), advantage(row)],
      el("span.note", {}, lineTags(report, row))),
    el("ol", {}, queries),
    el("p.answer", {}, record.answer ? marked(record.answer, texts) : t("(none)")),
    record.dropped ? el("p.bad", {}, t(report.page.messages[record.dropped.cause])) : null,
    el("p.note", {}, counted(row.tokens, "{n} tokens"), ` · ${figure(row.seconds, 1)} s`));
}
