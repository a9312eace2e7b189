// Loading, error and empty states.

import { h } from "./dom.js";

/** Create grey placeholders for content that is loading. */
export function skeleton(lines, kind = "lines") {
  const bars = Array.from({ length: lines }, (_, row) => h("span", { vars: { share: `${92 - ((row * 37) % 41)}%` } }));
  return h("div", { class: `skeleton ${kind}`, role: "status", "aria-label": "Loading" }, bars);
}

/** Create an empty state with a sentence that says what to do. */
export const empty = (title, ...words) =>
  h("div", { class: "state" }, h("h3", {}, title), words.length > 0 && h("p", {}, words));

/** Show the server's error message, with advice. */
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
    return ["No connection", "Your input is saved in the address of this page."];
  if (error.status === 422 || error.status === 413) return ["Invalid request", null];
  if (error.status === 429) return ["Server busy", "All retries failed. Wait a moment and try again."];
  if (error.status === 503) return ["Not ready", null];
  if (error.status === 504) return ["Request timed out", "Request fewer answers or a single relation."];
  return ["Something went wrong", null];
}

/** Create the form for the token. */
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
      ", or enter the token here. The browser keeps it until you close it.",
    ),
    h("form", { class: "inline", onsubmit: open }, field, h("button", {}, "Open")),
  );
}

let timer = 0;
/** Show a short message at the bottom, which screen readers announce. */
export function toast(message, milliseconds = 2500) {
  const place = document.getElementById("toast");
  clearTimeout(timer);
  place.textContent = message ?? "";
  place.hidden = !message;
  if (message && milliseconds) timer = setTimeout(() => (place.hidden = true), milliseconds);
}
