"use strict";
// Show any number of rollouts as a list, of which only the lines in sight exist.

const LINE = 62; // pixels, the height of .line in the style
const SPARE = 6; // lines above and below those in sight

class RolloutList {
  /** `open` is called with the row that was chosen. */
  constructor(report, open) {
    this.report = report;
    this.open = open;
    this.rows = [];
    this.selected = null;
    this.space = el("div.space", { onclick: event => this.clicked(event.target.closest(".line")) });
    this.element = el("div.lines", { tabIndex: 0, id: "lines", role: "listbox", ariaLabel: t("rollouts"), onscroll: () => this.paint() }, this.space);
    new ResizeObserver(() => this.paint()).observe(this.element);
  }

  show(rows) {
    this.rows = rows;
    this.space.style.height = `${rows.length * LINE}px`;
    this.paint();
  }

  /** Select `row` and bring it into sight. */
  select(row) {
    this.selected = row;
    const top = this.rows.indexOf(row) * LINE;
    const { scrollTop, clientHeight } = this.element;
    if (top >= 0 && (top < scrollTop || top + LINE > scrollTop + clientHeight)) this.element.scrollTop = Math.max(0, top - clientHeight / 3);
    this.paint();
  }

  /** Select the next row, or with -1 the previous one, and open it. */
  move(by) {
    const from = this.rows.indexOf(this.selected);
    const row = this.rows[Math.min(this.rows.length - 1, Math.max(0, from + by))];
    if (row) this.open(row);
  }

  /** Open the rollout of `line`; the list listens for its lines, so that a line that stays knows a new report's row. */
  clicked(line) {
    if (line) this.open(this.rows[Number(line.dataset.position)]);
  }

  /** Draw the lines in sight; one that looks as before stays, so that a press of the mouse on it still becomes a click. */
  paint() {
    const first = Math.max(0, Math.floor(this.element.scrollTop / LINE) - SPARE);
    const last = Math.min(this.rows.length, Math.ceil((this.element.scrollTop + this.element.clientHeight) / LINE) + SPARE);
    const before = [...this.space.children];
    const lines = this.rows.slice(first, last).map((row, i) => this.line(row, first + i));
    lines.forEach((line, i) => {
      if (!before[i]) this.space.append(line);
      else if (!before[i].isEqualNode(line)) before[i].replaceWith(line);
    });
    before.slice(lines.length).forEach(line => line.remove());
  }

  line(row, position) {
    const line = el(`button.line.${row.mark}`, { type: "button", role: "option", tabIndex: -1, ariaSelected: String(row === this.selected) },
      el("b.score", {}, figure(row.reward, 2)), row.advantage === null ? el("i") : advantage(row),
      el("span.asked", {}, row.question ? row.question.question : t("lost before it had a record")),
      el("span.tags.note", {}, lineTags(this.report, row)));
    line.style.top = `${position * LINE}px`;
    line.dataset.position = position;
    return line;
  }
}

/** Return the short facts of a row, for a line of the list and the head of a card. */
function lineTags(report, row) {
  const tags = [];
  if (report.runs.length > 1) tags.push(LETTERS[row.run]);
  if (row.mode !== "eval") tags.push(row.step < 0 ? t("untrained") : t("step {step}", { step: row.step }));
  tags.push(row.mode === "eval" ? row.set : t(row.mode) + (row.set ? ` ${t(row.set)}` : ""));
  if (row.question && row.question.task_type) tags.push(row.question.task_type.replaceAll("_", " "));
  if (row.dropped) tags.push(t(`dropped: ${row.dropped}`));
  else if (row.outcome !== "answered") tags.push(t(row.outcome).replaceAll("_", " "));
  tags.push(counted(row.queries, "{n} queries"));
  if (row.change) tags.push(t(row.change));
  return tags.join(" · ");
}

function advantage(row) {
  return el(`span.advantage.${row.advantage < 0 ? "below" : "above"}`, { title: t("advantage") }, figure(row.advantage, 2, true));
}
