"use strict";
// Render one model's reply to a question: running queries, the answer, the rows that contain the answer, the rating.

const THUMB = "M2 10h4v11H2zM8 10l4-8c2 0 3 1.200 3 3l-1 4h6c1.500 0 2.300 1.200 2 2.600l-1.600 7.400c-.3 1.200-1.200 2-2.400 2H8z";

/** Return the element of a reply. `act` has the functions `rate(reply, rating, correction)`, `edit(reply, on)`, `write(reply, on)` and `run(reply, sql)`. */
function replyView(reply, messages, act) {
  const texts = reply.sources ? reply.sources.map(source => source.text) : [];
  const counts = reply.answer === undefined ? "" : [counted(reply.queries.filter(query => !query.own).length, "{n} queries"), `${figure(reply.seconds, 1)} s`].join(" · ");
  return el("article.reply", {}, el("header", {}, el("h3", {}, reply.model), el("span.note", {}, counts)),
    reply.queries.map((query, index) => liveQuery(query, index + 1, reply, texts)),
    reply.working ? el("p.working", { role: "status" }, t(reply.working)) : null,
    reply.failed ? el("p.bad", { role: "alert" }, reply.failed) : null,
    reply.answer === undefined ? null : answerView(reply, texts, messages),
    reply.answer === undefined ? null : ratingView(reply, act));
}

/** Return the element of a query, with rows once they arrive. After the answer, queries without a source are collapsed. */
function liveQuery({ sql, call, own }, number, reply, texts) {
  const holds = reply.sources && reply.sources.some(source => source.query === number);
  const rows = call && counted(call.answer.count, "{n} rows") + (call.answer.truncated ? `, ${t("cut by the limits")}` : "");
  const said = !call ? t("running") : call.answer.error ? t("error") : rows;
  const summary = el("summary", {}, `${t("Query {n}", { n: number })} · ${said}${call ? ` · ${figure(1000 * call.seconds, 1)} ms` : ""} `, own ? el("b", {}, t("yours")) : holds ? el("b", {}, t("in the answer")) : null);
  const open = own || !reply.sources || holds || !reply.sources.length;
  return el(`details.query${holds ? ".source" : ""}`, { open, id: `${reply.key}-query-${number}` }, summary, el("pre.sql", {}, sqlNodes(sql)), call ? foundView(call.answer, texts) : null);
}

function answerView(reply, texts, messages) {
  const sources = reply.sources.map(source => el("li", {}, el("button", { type: "button", onclick: () => showSource(reply, source), title: t("show the row") },
    el("mark", {}, source.text), ` ${t("Query {n}", { n: source.query })}, ${t("row")} ${source.row}, ${source.column}`)));
  return el("section", {}, el("p.answer", {}, reply.answer ? marked(reply.answer, texts) : t("(none)")),
    reply.outcome !== "answered" ? el("p.bad", {}, t(messages[reply.outcome])) : null,
    reply.unreadable ? el("details", {}, el("summary", {}, t("what the model wrote")), el("pre.raw", {}, reply.unreadable)) : null,
    reply.thoughts.length ? el("details.thoughts", {}, el("summary", {}, counted(reply.thoughts.length, "{n} thoughts")), reply.thoughts.map(thought => el("pre.raw.note", {}, thought))) : null,
    sources.length ? el("ul.sources", { ariaLabel: t("Sources") }, sources) : reply.answer ? el("p.note", {}, t("No row contains a text of the answer.")) : null);
}

/** Expand the query of a source with all its rows, and scroll to the first mark. */
function showSource(reply, source) {
  const query = document.getElementById(`${reply.key}-query-${source.query}`);
  query.open = true;
  const more = query.querySelector(".wide button");
  if (more) more.click();
  const row = query.querySelectorAll("tbody tr")[source.row - 1];
  row.scrollIntoView({ block: "center" });
  row.classList.remove("flash");
  requestAnimationFrame(() => row.classList.add("flash"));
}

function ratingView(reply, act) {
  const thumb = (rating, label) => el(`button.${rating}`, { type: "button", ariaPressed: String(reply.rating === rating), title: t(label), onclick: () => act.rate(reply, reply.rating === rating ? "withdrawn" : rating) },
    svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: THUMB })), t(label));
  const correct = el("button.correct", { type: "button", ariaPressed: String(reply.rating === "corrected"), ariaExpanded: String(Boolean(reply.editing)), onclick: () => act.edit(reply, !reply.editing) }, t("Correct it"));
  const write = el("button.write", { type: "button", ariaExpanded: String(Boolean(reply.writing)), onclick: () => act.write(reply, !reply.writing) }, t("Correct the SQL"));
  const said = reply.refused ? el("span.bad", { role: "alert" }, reply.refused) : reply.kept ? el("span.note", { role: "status" }, t(reply.kept)) : null;
  return el("div.rating", {}, thumb("up", "Right"), thumb("down", "Wrong"), correct, write, said, reply.editing ? correctionForm(reply, act) : null, reply.writing ? statementForm(reply, act) : null);
}

function correctionForm(reply, act) {
  const text = el("textarea", { rows: 2, value: reply.draft === undefined ? reply.answer : reply.draft, ariaLabel: t("the right answer"), oninput: () => { reply.draft = text.value; } });
  const send = event => { event.preventDefault(); act.rate(reply, "corrected", text.value); };
  return el("form", { onsubmit: send }, text, el("p.note", {}, t("The right answer: the facts only, separated by ;")),
    el("div", {}, el("button", { type: "submit" }, t("Keep")), el("button", { type: "button", onclick: () => act.edit(reply, false) }, t("Cancel"))));
}

function statementForm(reply, act) {
  const last = reply.queries.at(-1);
  const text = el("textarea", { rows: 3, value: last ? last.sql : "SELECT ", ariaLabel: t("your statement"), spellcheck: false });
  const send = event => { event.preventDefault(); act.run(reply, text.value); };
  return el("form.statement", { onsubmit: send }, text, el("p.note", {}, t("The statement runs read-only, with the limits of the agent. If you keep a correction, it becomes the question's SQL.")),
    el("div", {}, el("button", { type: "submit" }, t("Run")), el("button", { type: "button", onclick: () => act.write(reply, false) }, t("Cancel"))));
}
