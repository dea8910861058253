"use strict";
// Put the page together: views, keys, language, colours, and what a running training adds.

const POLL_MS = 2000;
const TABS = [["rollout", "Rollout"], ["group", "Group"], ["question", "Same question"], ["beside", "Two rollouts"], ["raw", "Raw turns"]];
const KEYS = [["/", "search"], ["j / k", "next and previous rollout"], ["1 – 5", "rollout, group, same question, two rollouts, raw turns"],
  ["o / r", "overview and rollouts"], ["Esc", "back to the list"], ["l", "language"], ["d", "dark and light"], ["?", "this help"]];

let report = null;
let list = null; // of the view "rollouts"
let detail = null;

function drawBar() {
  const view = currentView();
  const link = (name, label) => el("button", { type: "button", id: `show-${name}`, ariaCurrent: view === name ? "page" : "false", onclick: () => show(name) }, label);
  const help = el("dialog", { id: "help" }, el("h2", {}, t("Keys")), el("table", {}, KEYS.map(([key, what]) => el("tr", {}, el("th", {}, el("kbd", {}, key)), el("td", {}, t(what))))),
    el("form", { method: "dialog" }, el("button", {}, t("close"))));
  document.getElementById("bar").replaceChildren(el("h1", {}, translatedTitle()), LIVE ? el("span.live", { title: t("follows the run") }, t("live")) : "",
    el("nav", {}, link("overview", t("Overview")), link("rollouts", `${t("Rollouts")} ${report.rows.length.toLocaleString("en")}`)),
    el("span.tools", {},
      el("button", { type: "button", id: "language", onclick: switchLanguage, title: t("language") }, language === "zh" ? "English" : "中文"),
      el("button", { type: "button", id: "theme", onclick: switchTheme, title: t("dark and light"), ariaLabel: t("dark and light") }, "◐"),
      el("button", { type: "button", id: "keys", onclick: () => help.showModal(), title: t("Keys"), ariaLabel: t("Keys") }, "?")), help);
}

function translatedTitle() {
  const [first, ...rest] = report.page.title.split(" ");
  const names = report.runs.length > 1 ? report.runs.map((run, i) => `${LETTERS[i]} ${run.name}`).join(" · ") : rest.join(" ");
  return `${t(first)} ${names}`;
}

const currentView = () => state.get("view") || "overview";

function show(view) {
  setState({ view });
  draw();
}

function draw() {
  document.documentElement.lang = language;
  document.getElementById("disclaimer").textContent = t(DISCLAIMER);
  drawBar();
  const main = document.getElementById("main");
  list = detail = null;
  if (currentView() === "overview") return main.replaceChildren(overview(report));
  main.replaceChildren(rolloutsView());
  const row = rowOfState();
  if (row) open(row);
  refilter();
}

function rolloutsView() {
  list = new RolloutList(report, open);
  detail = el("section.detail", { id: "detail" }, el("p.note", {}, report.rows.length ? t("Choose a rollout.") : t("No rollout was recorded.")));
  return el("div.browser", {}, el("aside", {}, filterForm(report, refilter), el("p.note.count", {}, el("span", { id: "count", ariaLive: "polite" }), el("button", { type: "button", id: "save", title: t("a file for --train-file or --questions"), onclick: () => saveQuestions(list.rows) }, t("Save the questions"))), list.element), detail);
}

/** Show the rollouts that the filters leave. */
function refilter() {
  searchText(report, chosenRows(report.rows), (rows, share) => {
    if (!list) return;
    list.show(rows);
    document.getElementById("count").textContent = t("{n} of {all} rollouts", { n: rows.length.toLocaleString("en"), all: report.rows.length.toLocaleString("en") })
      + (share < 1 ? ` · ${t("searched {share} %", { share: Math.round(100 * share) })}` : "");
  });
}

function rowOfState() {
  const [run, index] = (state.get("rollout") || "").split("-").map(Number);
  return report.rows.find(row => row.run === run && row.index === index) || null;
}

/** Open a rollout, in the tab that was open before. */
async function open(row, tab = state.get("tab") || "rollout") {
  setState({ view: "rollouts", rollout: `${row.run}-${row.index}`, tab });
  if (!list) return draw();
  list.select(row);
  document.querySelector(".browser").classList.add("reading");
  const target = detail;
  const record = await report.record(row);
  const body = { rollout: () => rolloutView(report, row, record), group: () => groupView(report, row, open), question: () => sameQuestionView(report, row, open), beside: () => besideView(report, row, record, open), raw: () => rawView(record, report.runs[row.run].prompt) };
  const content = await body[tab]();
  if (target !== detail || row !== list.selected || tab !== state.get("tab")) return; // another one was opened meanwhile
  detail.replaceChildren(detailHead(row, record, tab), content);
  detail.scrollTop = 0;
}

function detailHead(row, record, tab) {
  const sizes = { group: report.groupOf(row).length, question: report.sameQuestion(row).length, raw: (record.replies || []).length };
  const facts = [row.advantage === null ? "" : `${t("advantage")} ${figure(row.advantage, 2, true)}`, lineTags(report, row), t("{a} + {b} tokens", { a: (record.usage || {}).prompt_tokens || 0, b: row.tokens }), `${figure(row.seconds, 2)} s`];
  return el("header", {}, el("button.back", { type: "button", onclick: close }, `‹ ${t("list")}`),
    el("h2", {}, row.question ? row.question.question : t("lost before it had a record")),
    el("p", {}, el(`b.badge.${row.mark}`, {}, `${t(row.mark)} ${figure(row.reward)}`), el("span.note", {}, facts.filter(Boolean).join(" · "))),
    el("p.note", {}, [row.question && row.question.id, record.rollout_id].filter(Boolean).join(" · ")),
    el("nav.tabs", { role: "tablist" }, TABS.map(([name, label]) => el("button", { type: "button", id: `tab-${name}`, role: "tab", ariaSelected: String(name === tab), onclick: () => open(row, name) },
      t(label), name in sizes ? el("small", {}, ` ${sizes[name]}`) : null))));
}

function close() {
  const browser = document.querySelector(".browser");
  if (browser) browser.classList.remove("reading");
}

function switchLanguage() {
  language = language === "zh" ? "en" : "zh";
  remember("language", language);
  draw();
}

addEventListener("keydown", event => {
  const typing = event.target.closest && event.target.closest("input, select, textarea");
  if (event.key === "Escape") { if (typing) typing.blur(); return close(); }
  if (!report || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const tab = TABS[Number(event.key) - 1];
  const actions = { "/": () => { if (!list) show("rollouts"); document.getElementById("search").focus(); }, j: () => list && list.move(1), k: () => list && list.move(-1),
    ArrowDown: () => list && list.move(1), ArrowUp: () => list && list.move(-1),
    o: () => show("overview"), r: () => show("rollouts"), l: switchLanguage, d: switchTheme, "?": () => document.getElementById("keys").click() };
  if (tab && list && list.selected) open(list.selected, tab[0]);
  else if (Object.hasOwn(actions, event.key)) actions[event.key]();
  else return;
  event.preventDefault();
});
addEventListener("hashchange", () => {
  for (const key of [...state.keys()]) state.delete(key);
  for (const [key, value] of new URLSearchParams(location.hash.slice(1))) state.set(key, value);
  if (report) draw();
});

/** Ask the server for the data again and again, and draw the page anew when they changed. */
async function follow(version) {
  let latest = version;
  try {
    const answer = await fetch("data", { headers: { ...authorization(), ...(version && { "If-None-Match": version }) } });
    if (answer.status === 401) return refused();
    if (answer.status === 200) {
      latest = answer.headers.get("ETag");
      refresh(new Report(await answer.json()));
    }
    document.body.classList.remove("lost");
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // fetch failed: the server has ended, the page stays
    document.body.classList.add("lost");
  }
  setTimeout(follow, POLL_MS, latest);
}

/** Ask for the token, and start again with it. */
function refused() {
  askForToken(document.getElementById("main"), t("the token is missing or wrong"), t("The terminal that serves this page shows its address with the token."), start);
  loaded();
}

/** Show fresh data: the list of rollouts keeps its place, its filters and the rollout that is open. */
function refresh(fresh) {
  const first = !report || !report.rows.length;
  report = fresh;
  document.title = report.page.title;
  if (first || !list) draw();
  else {
    drawBar();
    list.report = report;
    list.selected = rowOfState();
    refilter();
  }
  document.getElementById("problems").replaceChildren(...(report.page.problems || []).map(problem => el("p.bad", { role: "alert" }, problem)));
  loaded();
}

function loaded() {
  document.body.dataset.loaded = Math.round(performance.now());
}

async function start() {
  if (LIVE) return follow(null);
  refresh(await Report.embedded());
}
start();
