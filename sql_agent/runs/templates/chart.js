"use strict";
// Draw curves as SVG: values under the pointer or the arrow keys, curves that can be hidden, any width.

const HEIGHT = 220;
const MARGIN = { left: 44, right: 12, top: 8, bottom: 24 };
const DOTS = 40; // with more points than this, dots would hide the line

/** Return a figure of `curves`, each with a label, points [x, y] in order of x, and the number of its run. */
function chart({ title, unit, curves }) {
  const hidden = new Set();
  const plot = el("div.plot", { tabIndex: 0, role: "img" });
  const legend = el("div.legend");
  const at = el("span.note");
  let steps = [];
  let chosen = null;

  function draw() {
    const shown = curves.filter(curve => !hidden.has(curve));
    steps = [...new Set(shown.flatMap(curve => curve.points.map(point => point[0])))].sort((a, b) => a - b);
    if (chosen !== null && !steps.includes(chosen)) chosen = null;
    plot.replaceChildren(picture(shown, curves, steps, chosen, plot.clientWidth));
    at.textContent = steps.length ? t("step {step}", { step: chosen ?? steps[steps.length - 1] }) : "";
    legend.replaceChildren(...curves.map((curve, number) => legendItem(curve, number)));
    plot.setAttribute("aria-label", `${t(title)}: ${legend.textContent}`);
  }

  function legendItem(curve, number) {
    const value = valueAt(curve, chosen);
    const toggle = () => { if (!hidden.delete(curve)) hidden.add(curve); draw(); };
    return el(`button.curve.c${number % 8}`, { type: "button", onclick: toggle, ariaPressed: String(!hidden.has(curve)) },
      el(curve.run ? "i.dashed" : "i"), `${t(curve.label)}${curve.tag ? ` · ${curve.tag}` : ""}`,
      el("b", {}, value === undefined ? "" : ` ${short(value)}`));
  }

  plot.onpointermove = event => {
    if (!steps.length) return;
    const { left, width } = plot.getBoundingClientRect();
    const position = scale(steps, [MARGIN.left, width - MARGIN.right]);
    const x = event.clientX - left;
    const nearest = steps.reduce((best, step) => (Math.abs(position(step) - x) < Math.abs(position(best) - x) ? step : best));
    if (nearest !== chosen) { chosen = nearest; draw(); }
  };
  plot.onpointerleave = plot.onblur = () => { chosen = null; draw(); };
  plot.onkeydown = event => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move || !steps.length) return;
    const from = chosen === null ? (move < 0 ? steps.length : -1) : steps.indexOf(chosen);
    chosen = steps[Math.min(steps.length - 1, Math.max(0, from + move))];
    event.preventDefault();
    draw();
  };
  new ResizeObserver(draw).observe(plot);
  return el("figure.chart", {}, el("figcaption", {}, el("b", {}, t(title)), el("span.note", {}, t(unit)), at), plot, legend);
}

function picture(shown, curves, steps, chosen, width) {
  const root = svg("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}` });
  if (!steps.length || width < 80) return root;
  const values = shown.flatMap(curve => curve.points.map(point => point[1]));
  const levels = ticks(Math.min(0, ...extremes(values)), Math.max(...extremes(values)), 4);
  const x = scale(steps, [MARGIN.left, width - MARGIN.right]);
  const y = scale(levels, [HEIGHT - MARGIN.bottom, MARGIN.top]);
  for (const level of levels) {
    root.append(svg("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(level), y2: y(level) }),
      svg("text", { x: MARGIN.left - 6, y: y(level) + 4, "text-anchor": "end" }, short(level)));
  }
  const first = steps[0], last = steps[steps.length - 1];
  for (const step of ticks(first, last, Math.max(2, width / 90)).filter(s => s >= first && s <= last && Number.isInteger(s))) {
    root.append(svg("text", { x: x(step), y: HEIGHT - 6, "text-anchor": "middle" }, String(step)));
  }
  if (chosen !== null) root.append(svg("line", { class: "cursor", x1: x(chosen), x2: x(chosen), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }));
  for (const curve of shown) {
    const name = `curve c${curves.indexOf(curve) % 8}${curve.run ? " dashed" : ""}`;
    root.append(svg("polyline", { class: name, points: curve.points.map(([step, value]) => `${x(step)},${y(value)}`).join(" ") }));
    for (const [step, value] of curve.points) {
      if (curve.points.length <= DOTS || step === chosen) root.append(svg("circle", { class: name, cx: x(step), cy: y(value), r: step === chosen ? 4 : 2.5 }));
    }
  }
  return root;
}

function valueAt(curve, step) {
  const point = step === null ? curve.points[curve.points.length - 1] : curve.points.find(each => each[0] === step);
  return point && point[1];
}

/** Return a function from the range of `values` to pixels; of a single value, to the middle. */
function scale(values, [from, to]) {
  const [low, high] = extremes(values);
  return value => (high === low ? (from + to) / 2 : from + ((value - low) / (high - low)) * (to - from));
}

// Math.min(...values) fails on more than some 100,000 values.
function extremes(values) {
  return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}

/** Return about `count` round numbers from at most `low` to at least `high`. */
function ticks(low, high, count) {
  if (low === high) high = low + 1;
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(candidate => candidate >= rough * 0.999);
  const found = [];
  for (let i = Math.floor(low / step + 1e-9); i <= Math.ceil(high / step - 1e-9); i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

function short(value) {
  const size = Math.abs(value);
  if (size >= 1000) return value.toLocaleString("en", { maximumFractionDigits: 0 });
  return String(Number(value.toPrecision(3)));
}
