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
    if (points.length > 1) curves.push({ label: one.set ? `validation, ${one.set}` : one.mode, tag: report.runs.length > 1 ? LETTERS[one.run] : "", run: one.run, points });
  }
  return el("div", {}, curves.length ? chart({ title: "Reward on this question", unit: "mean of a step (0–1.1)", curves }) : null, await cards(report, rows, row, open));
}

/** Return `row` beside another rollout of its question: the one of the state, or the one that tells most. */
async function besideView(report, row, record, open) {
  const others = report.sameQuestion(row).filter(each => each !== row);
  if (!others.length) return el("p.note", {}, t("There is no other rollout of this question."));
  const id = each => `${each.run}-${each.index}`;
  const other = others.find(each => id(each) === state.get("beside")) || counterpart(row, others);
  const choice = el("select", { id: "beside", ariaLabel: t("the other rollout"), onchange: event => { setState({ beside: event.target.value }); open(row, "beside"); } },
    others.map(each => el("option", { value: id(each), selected: each === other }, `${figure(each.reward, 2)} · ${lineTags(report, each)}`)));
  const side = (each, of, head) => el("div", {}, el("p", {}, el(`b.badge.${each.mark}`, {}, `${t(each.mark)} ${figure(each.reward)}`), head), rolloutView(report, each, of));
  return el("div.pair", {}, side(other, await report.record(other), choice), side(row, record, el("span.note", {}, lineTags(report, row))));
}

/** Return the rollout that explains `row` best: the first run's, the first validation's, or one of its group of another mark. */
function counterpart(row, others) {
  const alike = others.filter(each => each.mode === row.mode && each.set === row.set);
  const group = alike.filter(each => groupKey(each) === groupKey(row));
  return alike.filter(each => row.change && each.run === 0).at(-1) || group.find(each => each.mark !== row.mark) || group[0] || alike[0] || others[0];
}

async function cards(report, rows, current, open) {
  const grid = el("div.cards");
  async function add(from) {
    const shown = rows.slice(from, from + CARDS);
    const records = new Map(await Promise.all(shown.map(async row => [row, await report.record(row)])));
    for (const same of grouped(shown, row => `${groupKey(row)}\n${deeds(row, records.get(row))}`).values()) {
      const row = same.includes(current) ? current : same[0];
      grid.append(card(report, row, records.get(row), { count: same.length, current: row === current }, open));
    }
    const left = rows.length - from - shown.length;
    if (left > 0) {
      const more = el("button", { type: "button", onclick: () => { more.remove(); add(from + CARDS); } }, t("{n} more", { n: left }));
      grid.append(more);
    }
  }
  await add(0);
  return grid;
}

/** Return what a rollout did and earned; rollouts of a group that do not differ in it are one card. */
function deeds({ reward }, { calls, answer, outcome, dropped }) {
  return JSON.stringify([(calls || []).map(call => call.sql), answer, outcome, dropped, reward]);
}

function card(report, row, record, { count, current }, open) {
  const texts = evidenceTexts(row.question);
  const queries = (record.calls || []).map(({ sql, answer }) => el("li", {}, el("pre.sql", {}, sqlNodes(sql)),
    answer.error ? el("span.bad", {}, answer.error.kind) : el("span.note", {}, counted(answer.count, "{n} rows"))));
  return el(`article.card.${row.mark}${current ? ".current" : ""}`, {},
    el("button.head", { type: "button", onclick: () => open(row) }, el("b.score", {}, figure(row.reward, 2)), count > 1 ? el("b.times", { title: t("the same queries and answer") }, `× ${count}`) : null,
      row.advantage === null ? null : [el("span.note", {}, t("advantage")), advantage(row)],
      el("span.note", {}, lineTags(report, row))),
    el("ol", {}, queries),
    answerView(record, texts),
    record.dropped ? el("p.bad", {}, t(report.page.messages[record.dropped.cause])) : null,
    el("p.note", {}, counted(row.tokens, "{n} tokens"), ` · ${figure(row.seconds, 1)} s`));
}
