"use strict";
// Show one rollout: question, queries with their rows, answer, the judge's reasons, and the raw turns.

const ROWS = 10; // of a result; a button shows the others
const WORDS = /('(?:[^']|'')*')|\b(SELECT|DISTINCT|FROM|WHERE|AND|OR|NOT|IN|LIKE|GLOB|BETWEEN|IS|NULL|JOIN|LEFT|INNER|ON|AS|GROUP|ORDER|BY|HAVING|LIMIT|OFFSET|UNION|ALL|WITH|CASE|WHEN|THEN|ELSE|END|COUNT|DESC|ASC|EXISTS)\b/gi;

/** Return the texts that support the answer of `question`: the reference's facts and the quotes of its evidence. */
function evidenceTexts(question) {
  if (!question) return [];
  const whole = [question.answer, ...(question.evidence || []).map(item => item.quote)];
  const parts = whole.flatMap(text => text.split(/[;；]/)).map(text => text.trim());
  return [...new Set([...whole, ...parts])].filter(Boolean).sort((a, b) => b.length - a.length);
}

/** Return `text` as nodes, each occurrence of one of `texts` marked; longer ones first, so that none is cut. */
function marked(text, texts) {
  const lower = text.toLowerCase();
  const covered = new Array(text.length).fill(false);
  for (const wanted of texts.map(each => each.toLowerCase())) {
    for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, at + wanted.length)) covered.fill(true, at, at + wanted.length);
  }
  const nodes = [];
  for (let start = 0, end; start < text.length; start = end) {
    end = start + 1;
    while (end < text.length && covered[end] === covered[start]) end++;
    nodes.push(covered[start] ? el("mark", {}, text.slice(start, end)) : text.slice(start, end));
  }
  return nodes;
}

/** Return a statement as nodes, its words and texts coloured. */
function sqlNodes(sql) {
  const nodes = [];
  let end = 0;
  for (const match of sql.matchAll(WORDS)) {
    nodes.push(sql.slice(end, match.index), el(match[1] ? "span.string" : "span.word", {}, match[0]));
    end = match.index + match[0].length;
  }
  return [...nodes, sql.slice(end)];
}

/** Return the view of one rollout. */
function rolloutView(report, row, record) {
  const texts = evidenceTexts(row.question);
  return el("div.rollout", {},
    (record.calls || []).map((call, number) => queryView(call, number + 1, texts)),
    section(t("Answer"), answerView(record, texts),
      record.outcome && record.outcome !== "answered" ? el("p.bad", {}, t(report.page.messages[record.outcome])) : null),
    row.question ? referenceView(row.question, row.mark === "wrong") : null,
    record.dropped ? section(t("Dropped"), el("p.bad", {}, t(report.page.messages[record.dropped.cause]), record.dropped.detail ? `: ${record.dropped.detail}` : "")) : null,
    record.reward ? rewardView(record.reward) : null);
}

/** Return the answer with the facts of `texts` marked, or in small type a tool call that cannot be read. */
function answerView({ answer, outcome }, texts) {
  if (outcome === "malformed_call") return el("pre.raw", {}, answer);
  return el("p.answer", {}, answer ? marked(answer, texts) : t("(none)"));
}

function section(title, ...content) {
  return el("section", {}, el("h3", {}, title), content);
}

function queryView({ sql, answer, seconds }, number, texts) {
  return section(t("Query {n}", { n: number }), el("span.note.beside", {}, `${figure(1000 * seconds, 1)} ms`),
    el("pre.sql", {}, sqlNodes(sql)), foundView(answer, texts));
}

/** Return the rows of a query's answer with `texts` marked, or its error, and the hint. */
function foundView(answer, texts) {
  const hint = answer.error ? answer.error.hint : answer.hint;
  const found = answer.error
    ? el("p.bad", {}, `${answer.error.kind}: ${answer.error.message}`)
    : [resultTable(answer, texts), el("p.note", {}, counted(answer.count, "{n} rows"), answer.truncated ? ` · ${t("cut by the limits")}` : "")];
  return [found, hint ? el("p.hint", {}, `${t("hint")}: ${hint}`) : null];
}

function resultTable({ columns, records }, texts) {
  if (!records || !records.length) return null;
  const long = texts.filter(text => text.length > 1); // a single letter would be marked in every word
  const line = cells => el("tr", {}, cells.map(cell => el("td", {}, cell === null ? el("i.note", {}, "NULL") : marked(String(cell), long))));
  const body = el("tbody", {}, records.slice(0, ROWS).map(line));
  const rest = records.slice(ROWS);
  const more = rest.length ? el("button", { type: "button", onclick: () => { body.append(...rest.map(line)); more.remove(); } }, t("{n} more", { n: rest.length })) : null;
  return el("div.wide", {}, el("table", {}, el("thead", {}, el("tr", {}, columns.map(name => el("th", {}, name)))), body), more);
}

/** Return the reference of `question`; its evidence and SQL are shown at once if `open`. */
function referenceView(question, open) {
  const evidence = (question.evidence || []).map(item =>
    el("li", {}, el("code", {}, `${item.table}.${item.field}`), ` (${t("row")} ${item.row_id}): `, el("mark", {}, item.quote)));
  return section(t("Reference"), el("p", {}, question.answer),
    evidence.length || question.sql ? el("details", { open }, el("summary", {}, t("evidence and SQL of the reference")), el("ul", {}, evidence),
      question.sql ? el("pre.sql", {}, sqlNodes(question.sql)) : null) : null);
}

function rewardView(reward) {
  const names = Object.keys(reward.criteria || {});
  const { reasons, rest } = reasonsByCriterion(reward.reason || "", names);
  const lines = names.map(name => el("tr", {}, el("th", {}, t(name.replaceAll("_", " "))), el("td.score", {}, figure(reward.criteria[name], 2)),
    el("td", {}, meter(reward.criteria[name])), el("td", {}, reasons[name] || "")));
  return section(t("Reward"),
    el("p", {}, el("b", {}, figure(reward.rule + reward.judge)), ` = ${t("rule")} ${figure(reward.rule, 1)} + ${t("judge")} ${figure(reward.judge)}`, reward.judge_name ? ` (${reward.judge_name})` : ""),
    lines.length ? el("div.wide", {}, el("table.criteria", {}, lines)) : null, rest ? el("p", {}, rest) : null);
}

function meter(value) {
  const bar = el("span.meter", {}, el("i"));
  bar.firstChild.style.width = `${Math.round(100 * Math.min(1, Math.max(0, Math.abs(value))))}%`;
  if (value < 0) bar.classList.add("negative");
  return bar;
}

/** Split "facts: …; form: …", as the judge writes its reasons, by criterion; `rest` is what belongs to none. */
function reasonsByCriterion(text, names) {
  const starts = names.map(name => [name, text.startsWith(`${name}: `) ? 0 : text.indexOf(`; ${name}: `)])
    .filter(([, at]) => at >= 0).sort((a, b) => a[1] - b[1]);
  const reasons = {};
  starts.forEach(([name, at], i) => {
    const end = i + 1 < starts.length ? starts[i + 1][1] : text.length;
    reasons[name] = text.slice(at, end).replace(/^; /, "").slice(name.length + 2);
  });
  return { reasons, rest: starts.length ? text.slice(0, starts[0][1]) : text };
}

/** Return the system prompt and each reply of the model as its server returned it, with tokens and seconds. */
function rawView(record, prompt) {
  const replies = record.replies || [];
  if (!replies.length) return el("p.note", {}, t("No reply was recorded."));
  const system = prompt ? el("details.prompt", {}, el("summary", {}, t("System prompt")), el("pre.raw", {}, prompt)) : null;
  return el("div", {}, system, replies.map((reply, number) => section(t("Turn {n}", { n: number + 1 }),
    el("span.note.beside", {}, [t("{a} + {b} tokens", { a: reply.prompt_tokens, b: reply.completion_tokens }), `${figure(reply.seconds, 2)} s`, reply.finish_reason].filter(Boolean).join(" · ")),
    reply.reasoning ? el("details.prompt", {}, el("summary", {}, t("Thought")), el("pre.raw.note", {}, reply.reasoning)) : null,
    reply.text ? el("pre.raw", {}, reply.text) : null,
    (reply.tool_calls || []).map(call => el("pre.raw.tool", {}, `${call.name}(${call.arguments})`)))));
}
