"use strict";
// Run the conversation: send questions to the server, render replies, store the chosen models, handle keys.

const KEYS = [["Enter", "ask"], ["Shift+Enter", "a new line"], ["Esc", "stop the question"], ["/", "to the question"],
  ["l", "language"], ["d", "dark and light"], ["?", "this help"]];
const turns = []; // objects { question, replies, element }
let known = null; // the response of /state: models, database, messages
let running = null; // the AbortController of the question that is being answered
let following = null; // the turn that the next question follows up
let draft = "";

/** Send a request to the server. Throws an Error with a one-line message. */
async function request(path, body, signal) {
  const headers = authorization();
  let answer;
  try {
    answer = await fetch(path, body ? { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body), signal } : { headers });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error(t("the server does not answer"));
  }
  if (answer.ok) return answer;
  if (answer.status === 401) throw Object.assign(new Error(t("the token is missing or wrong")), { token: true });
  throw new Error(answer.status === 400 ? (await answer.json()).message : t("the server failed ({status}): see its terminal", { status: answer.status }));
}

function draw() {
  document.documentElement.lang = language;
  document.getElementById("disclaimer").textContent = t(DISCLAIMER);
  drawBar();
  drawDatabase();
  drawAsk();
  const shown = turns.length ? turns.map(turnView) : [introView()];
  document.getElementById("conversation").replaceChildren(...shown);
}

function drawBar() {
  const help = el("dialog", { id: "help" }, el("h2", {}, t("Keys")), el("table", {}, KEYS.map(([key, what]) => el("tr", {}, el("th", {}, el("kbd", {}, key)), el("td", {}, t(what))))),
    el("form", { method: "dialog" }, el("button", {}, t("close"))));
  const choice = (id, at, none) => el("select", { id, onchange: event => { known.chosen[at] = event.target.value; } },
    none ? el("option", { value: "" }, none) : null, known.models.map(name => el("option", { value: name, selected: name === known.chosen[at] }, name)));
  document.getElementById("bar").replaceChildren(el("h1", {}, t("Chat")),
    known ? el("span.models", {}, el("label", {}, `${t("Model")} `, choice("model", 0)), el("label", {}, `${t("beside")} `, choice("beside", 1, t("no other")))) : "",
    el("span.tools", {},
      el("button", { type: "button", id: "language", onclick: switchLanguage, title: t("language") }, language === "zh" ? "English" : "中文"),
      el("button", { type: "button", id: "theme", onclick: switchTheme, title: t("dark and light"), ariaLabel: t("dark and light") }, "◐"),
      el("button", { type: "button", id: "keys", onclick: () => help.showModal(), title: t("Keys"), ariaLabel: t("Keys") }, "?")), help);
}

/** Show the name, tables and columns of the database. */
function drawDatabase() {
  if (!known) return;
  const rows = known.tables.map(([table, columns]) => el("tr", {}, el("th", {}, table), el("td", {}, columns)));
  document.getElementById("database").replaceChildren(el("details", {}, el("summary", {}, `${t("Database")} ${known.database} · ${counted(known.tables.length, "{n} tables")}`), el("table", {}, rows)));
}

function drawAsk() {
  const form = document.getElementById("ask");
  form.hidden = !known;
  if (!known) return;
  const text = el("textarea", { id: "question", rows: 1, value: draft, maxLength: known.longest, placeholder: t("Ask about the database"), ariaLabel: t("question"),
    oninput: () => { draft = text.value; grow(text); }, onkeydown: event => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); } } });
  form.onsubmit = event => { event.preventDefault(); submit(); };
  const follows = following ? el("p.note", {}, el("button", { type: "button", id: "unfollow", ariaLabel: t("ask by itself"), onclick: () => follow(null) }, "×"), ` ${t("Together with:")} ${following.question}`) : null;
  form.replaceChildren(...[follows].filter(Boolean), text, running ? el("button", { type: "button", id: "stop", onclick: stop }, t("Stop")) : el("button", { id: "send" }, t("Ask")));
  grow(text);
}

function grow(text) {
  text.style.height = "auto";
  text.style.height = `${text.scrollHeight + 2}px`;
}

/** Send the next question together with that of `turn`, because models are trained on single questions. */
function follow(turn) {
  following = turn;
  drawAsk();
  document.getElementById("question").focus();
}

function introView() {
  if (!known) return el("div", {});
  return el("div.intro", {}, el("h2", {}, t("Ask a question about the database")),
    el("p.note", {}, t("Each query appears when it is sent, its rows when they come, then the answer. A follow-up is sent together with its question.")),
    el("div.examples", {}, known.examples.map(text => el("button", { type: "button", onclick: () => begin(text) }, text))));
}

function turnView(turn) {
  turn.replies.forEach(reply => { reply.element = replyView(reply, known.messages, actions); });
  return el("section.turn", {}, el("p.asked-by", {}, turn.question, el("button.follow", { type: "button", onclick: () => follow(turn) }, t("Follow up"))), el("div.replies", {}, turn.replies.map(reply => reply.element)));
}

/** Render a reply again. A page that was scrolled to its end stays there. */
function update(reply, focused) {
  const end = document.documentElement.scrollHeight - innerHeight - scrollY < 80;
  const fresh = replyView(reply, known.messages, actions);
  reply.element.replaceWith(fresh);
  reply.element = fresh;
  if (focused) fresh.querySelector(focused).focus();
  if (end) scrollTo(0, document.documentElement.scrollHeight);
}

function submit() {
  if (!running && draft.trim()) begin(draft.trim());
}

/** Ask the chosen models a question concurrently. */
async function begin(asked) {
  if (running) return;
  const question = following ? `${following.question}\n${asked}` : asked;
  following = null;
  const models = [...new Set(known.chosen.filter(Boolean))];
  const turn = { question, replies: models.map((model, side) => ({ model, key: `turn-${turns.length}-${side}`, queries: [], working: "Thinking" })) };
  turns.push(turn);
  draft = "";
  running = new AbortController();
  drawAsk();
  const conversation = document.getElementById("conversation");
  if (turns.length === 1) conversation.replaceChildren();
  conversation.append(turnView(turn));
  document.getElementById("question").focus();
  scrollTo(0, document.documentElement.scrollHeight);
  await Promise.all(turn.replies.map(reply => answer(reply, question, running.signal)));
  running = null;
  drawAsk();
  document.getElementById("question").focus();
}

function stop() {
  if (running) running.abort();
}

/** Read the events of one model's reply and render each when it arrives. */
async function answer(reply, question, signal) {
  try {
    for await (const event of lines(await request("ask", { model: reply.model, question }, signal))) {
      take(reply, event);
      update(reply);
    }
    if (reply.working) throw new Error(t("the server does not answer"));
  } catch (error) {
    reply.failed = error.name === "AbortError" ? t("Stopped.") : error.message;
    reply.working = null;
    update(reply);
  }
}

/** Yield the objects of a response in JSON Lines. */
async function* lines(response) {
  let rest = "";
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
}

function take(reply, event) {
  const working = { loading: "Loading the model", sent: "Querying", rows: "Thinking" }[event.kind] || null;
  if (event.kind === "sent") reply.queries[event.number - 1] = { sql: event.sql };
  if (event.kind === "rows") reply.queries[event.number - 1].call = event.call;
  if (event.kind === "failed") reply.failed = event.message;
  if (event.kind === "answer") Object.assign(reply, event);
  reply.working = working;
}

const actions = {
  async rate(reply, rating, correction = "") {
    try {
      await request("rate", { answer: reply.id, rating, correction });
      Object.assign(reply, { rating: rating === "withdrawn" ? null : rating, refused: null, editing: false, kept: rating === "withdrawn" ? "Withdrawn." : "Kept." });
      update(reply, `.${{ corrected: "correct", withdrawn: "up" }[rating] || rating}`);
    } catch (error) {
      reply.refused = error.message;
      update(reply);
    }
  },
  edit(reply, on) {
    Object.assign(reply, { editing: on, writing: false });
    update(reply, on ? ".rating textarea" : ".correct");
  },
  write(reply, on) {
    Object.assign(reply, { writing: on, editing: false });
    update(reply, on ? ".rating textarea" : ".write");
  },
  /** Run a person's SQL. If the result has one column, propose its cells as the right answer. */
  async run(reply, sql) {
    try {
      const { call } = await (await request("run", { answer: reply.id, sql })).json();
      reply.queries.push({ sql, call, own: true });
      const cells = (call.answer.records || []).filter(row => row.length === 1 && row[0] !== null);
      Object.assign(reply, { refused: null, ...(cells.length && { draft: cells.map(([cell]) => cell).join("; "), editing: true, writing: false }) });
      update(reply, ".rating textarea");
    } catch (error) {
      reply.refused = error.message;
      update(reply);
    }
  },
};

function switchLanguage() {
  language = language === "zh" ? "en" : "zh";
  remember("language", language);
  draw();
}

addEventListener("keydown", event => {
  if (event.key === "Escape") return running ? stop() : event.target.blur();
  if (event.target.closest("input, select, textarea, dialog") || event.ctrlKey || event.metaKey || event.altKey || !known) return;
  const keys = { "/": () => document.getElementById("question").focus(), l: switchLanguage, d: switchTheme, "?": () => document.getElementById("keys").click() };
  if (!Object.hasOwn(keys, event.key)) return;
  keys[event.key]();
  event.preventDefault();
});

async function start() {
  draw();
  try {
    known = await (await request("state")).json();
    draw();
    document.getElementById("question").focus();
  } catch (error) {
    const conversation = document.getElementById("conversation");
    if (error.token) askForToken(conversation, error.message, t("The terminal that serves this page shows its address with the token, or CHAT_TOKEN holds it."), start);
    else conversation.replaceChildren(el("p.bad", { role: "alert" }, error.message));
  }
  document.body.dataset.loaded = "yes";
}
start();
