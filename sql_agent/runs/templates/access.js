"use strict";
// Authenticate to the server of the page: the token comes behind # of the address, once, and is kept for this tab.

let token = takeToken();

/** Return the token behind # of the address, which is removed from the address, or the token of this tab. */
function takeToken() {
  const hash = new URLSearchParams(location.hash.slice(1));
  const given = hash.get("token");
  if (!given) return storedToken();
  storeToken(given);
  hash.delete("token");
  history.replaceState(null, "", location.pathname + (hash.toString() && `#${hash}`));
  return given;
}

// A browser may refuse to store anything for a page that was opened from a file.
function storedToken() {
  try { return sessionStorage.getItem("token") || ""; } catch { return ""; }
}

function storeToken(value) {
  try { sessionStorage.setItem("token", value); } catch { /* the token is kept until the page is closed */ }
}

/** Return the header that authenticates a request. */
function authorization() {
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/** Ask for the token and call `start` with it; `message` says why and `where` says where the token is found. */
function askForToken(target, message, where, start) {
  const field = el("input", { type: "password", id: "token", autocomplete: "off", ariaLabel: t("token") });
  const send = event => { event.preventDefault(); token = field.value; storeToken(token); start(); };
  target.replaceChildren(el("form.intro", { onsubmit: send }, el("h2", {}, message), el("p.note", {}, where), field, " ", el("button", {}, t("Enter"))));
  field.focus();
}
