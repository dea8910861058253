"use strict";
// Make elements, write texts in the reader's language, and keep the reader's colours.

const CHINESE = JSON.parse(document.getElementById("chinese").textContent);
let language = (recall("language") || navigator.language || "en").startsWith("zh") ? "zh" : "en";

const DISCLAIMER = document.getElementById("disclaimer").textContent;

/** Return `text` in the reader's language, with {name} replaced by the value of that name. */
function t(text, values = {}) {
  const written = (language === "zh" && CHINESE[text]) || text;
  return written.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? values[name] : whole));
}

/** Return "1 row" or "3 rows", of a key of the dictionary such as "{n} rows". */
function counted(n, many) {
  return n === 1 && language === "en" ? t({ "{n} queries": "{n} query" }[many] || many.replace(/s$/, ""), { n }) : t(many, { n });
}

/** Make an element from "tag.class.class", its properties, and children: elements, texts, arrays, or nothing. */
function el(name, properties = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on") || key in element) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children.flat(3).filter(child => child !== null && child !== undefined && child !== ""));
  return element;
}

/** Make an SVG element with attributes and children. */
function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children.flat());
  return element;
}

/** Return a number with so many digits behind the point, or a dash for none. */
function figure(value, digits = 3, sign = false) {
  if (value === null || value === undefined) return "–";
  return (sign && value >= 0 ? "+" : "") + value.toFixed(digits);
}

// A browser may refuse to store anything for a page that was opened from a file.
function recall(key) {
  try { return localStorage.getItem(`sql-agent-${key}`); } catch { return null; }
}
function remember(key, value) {
  try { localStorage.setItem(`sql-agent-${key}`, value); } catch { /* the choice holds until the page is closed */ }
}

/** Change between dark and light, or to the one that is `wanted`. */
function switchTheme(event, wanted) {
  const root = document.documentElement;
  const dark = root.style.colorScheme ? root.style.colorScheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.style.colorScheme = wanted || (dark ? "light" : "dark");
  remember("theme", root.style.colorScheme);
}
if (recall("theme")) switchTheme(null, recall("theme"));
