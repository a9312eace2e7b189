// What is shown while content loads, if it fails, and if there is none.

import { h } from "./dom.js";

/** Grey shapes in the form of what is on its way. */
export function skeleton(lines, kind = "lines") {
  const bars = Array.from({ length: lines }, (_, row) => h("span", { vars: { share: `${92 - ((row * 37) % 41)}%` } }));
  return h("div", { class: `skeleton ${kind}`, role: "status", "aria-label": "Loading" }, bars);
}

/** An empty place with a sentence that says what to do. */
export const empty = (title, ...words) =>
  h("div", { class: "state" }, h("h3", {}, title), words.length > 0 && h("p", {}, words));

/** An error in the server's own words, with what can be done about it. */
export function failure(error, retry) {
  if (error.status === 401) return locked();
  const [title, advice] = told(error);
  return h(
    "div",
    { class: "state failed", role: "alert" },
    h("h3", {}, title),
    h("p", {}, error.message),
    advice && h("p", { class: "soft" }, advice),
    retry && h("button", { type: "button", onclick: retry }, "Try again"),
  );
}

function told(error) {
  if (error.status === 0)
    return ["No connection", "Your input is kept in the address of this page."];
  if (error.status === 422 || error.status === 413) return ["Invalid request", null];
  if (error.status === 429) return ["Server busy", "All retries failed. Wait a moment and try again."];
  if (error.status === 503) return ["Not ready", null];
  if (error.status === 504) return ["Request timed out", "Request fewer answers or a single relation."];
  return ["Something went wrong", null];
}

/** The server wants a token: where to write it. */
function locked() {
  const field = h("input", {
    type: "password",
    autocomplete: "off",
    "aria-label": "Token",
    placeholder: "Token",
    required: true,
  });
  const open = (event) => {
    event.preventDefault();
    location.assign(`/?token=${encodeURIComponent(field.value)}${location.hash}`);
  };
  return h(
    "div",
    { class: "state failed", role: "alert" },
    h("h3", {}, "This server requires a token"),
    h(
      "p",
      {},
      "Open this page as ",
      h("code", {}, "/?token=…"),
      ", or enter the token here. The browser forgets it when it is closed.",
    ),
    h("form", { class: "inline", onsubmit: open }, field, h("button", {}, "Open")),
  );
}

let timer = 0;
/** A short message at the bottom, read aloud by screen readers. */
export function toast(message, milliseconds = 2500) {
  const place = document.getElementById("toast");
  clearTimeout(timer);
  place.textContent = message ?? "";
  place.hidden = !message;
  if (message && milliseconds) timer = setTimeout(() => (place.hidden = true), milliseconds);
}
