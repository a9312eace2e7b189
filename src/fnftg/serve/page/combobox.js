// A text field with suggestions that follows the ARIA combobox pattern: arrow keys, Enter, Escape, or the mouse.

import { aborted } from "./api.js";
import { debounced, freshId, h, latest } from "./dom.js";

/**
 * `source(text, signal)` returns options {label, detail?, note?, value, fresh?}. `onpick(option)` gets the chosen
 * option, and `onempty()` is called when the field is cleared. `wait`: debounce in milliseconds. `keep`: keep the
 * choice in the field instead of clearing it. `least`: number of characters before suggestions appear.
 */
export function combobox({
  label,
  placeholder = "",
  source,
  onpick,
  onempty,
  wait = 0,
  keep = false,
  least = 0,
  big = false,
}) {
  const id = freshId("field");
  const list = h("ul", { id: `${id}-list`, role: "listbox", "aria-label": label, class: "options", hidden: true });
  const input = h("input", {
    id,
    type: "text",
    role: "combobox",
    placeholder,
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    maxlength: "200",
    "aria-label": label,
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": list.id,
    enterkeyhint: keep ? "done" : "search",
  });
  const problem = h("p", { id: `${id}-problem`, class: "problem", hidden: true });
  const element = h("div", { class: `combobox${big ? " big" : ""}${keep ? " choice" : ""}` }, input, list, problem);
  const newest = latest();
  let options = [];
  let active = -1;
  let chosen = ""; // label of the last choice
  let wanted = false; // Enter was pressed before the suggestions arrived

  const isOpen = () => !list.hidden;

  function close() {
    suggest.cancel();
    newest();
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function open(children) {
    list.replaceChildren(...children);
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
  }

  const say = (text) => open([h("li", { class: "remark", role: "option", "aria-disabled": "true" }, text)]);

  function activate(place) {
    list.children[active]?.setAttribute("aria-selected", "false");
    active = place;
    const row = list.children[active];
    if (!row) return input.removeAttribute("aria-activedescendant");
    row.setAttribute("aria-selected", "true");
    row.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", row.id);
  }

  function pick(option) {
    chosen = keep ? option.label : "";
    input.value = chosen;
    close();
    onpick(option);
  }

  async function suggestions(text = input.value.trim()) {
    if (text.length < least) return close();
    const signal = newest();
    const slow = setTimeout(() => say("Looking…"), 200);
    try {
      const found = await source(text, signal);
      if (signal.aborted) return;
      options = found;
      active = -1;
      if (!options.length)
        return say(text ? `No match for “${text}”.` : "No options.");
      open(options.map(row));
      if (wanted) pick(options[0]);
      else if (!keep || text) activate(0);
    } catch (error) {
      if (!aborted(error)) {
        options = [];
        say(error.message);
      }
    } finally {
      clearTimeout(slow);
      if (!signal.aborted) wanted = false;
    }
  }
  const suggest = debounced(suggestions, wait);

  function row(option, place) {
    const name = h("span", { class: "option-name" }, option.label, option.note && h("small", {}, option.note));
    return h(
      "li",
      {
        id: `${id}-${place}`,
        role: "option",
        "aria-selected": "false",
        class: option.fresh ? "fresh" : null,
        onpointerdown: (event) => event.preventDefault(), // keep the focus in the field
        onpointermove: () => active !== place && activate(place),
        onclick: () => pick(option),
      },
      name,
      option.detail && h("span", { class: "option-detail" }, option.detail),
    );
  }

  input.addEventListener("input", () => {
    problem.hidden = true;
    options = [];
    suggest();
  });
  input.addEventListener("focus", () => {
    if (keep) input.select();
  });
  input.addEventListener("click", () => !isOpen() && (least === 0 || input.value) && showAll());
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!isOpen()) return showAll();
      const step = event.key === "ArrowDown" ? 1 : -1;
      if (options.length) activate((active + step + options.length) % options.length);
    } else if (event.key === "Enter") {
      if (isOpen() && options.length) {
        event.preventDefault();
        pick(options[Math.max(active, 0)]);
      } else if (input.value.trim() && input.value !== chosen) {
        event.preventDefault();
        wanted = true;
        suggest.now();
      }
    } else if (event.key === "Escape") {
      if (!isOpen() && !input.value) return;
      event.preventDefault();
      event.stopPropagation();
      if (isOpen()) close();
      else input.value = chosen;
    }
  });
  input.addEventListener("blur", () => {
    const text = input.value.trim();
    const exact =
      keep && text !== chosen && options.find((option) => option.label.toLowerCase() === text.toLowerCase());
    close();
    if (!keep) return;
    if (exact) pick(exact);
    else if (!text && onempty) {
      chosen = "";
      onempty();
    } else input.value = chosen;
  });

  /** Show matching options, or all options if the field shows the last choice. */
  function showAll() {
    suggest.now(keep && input.value === chosen ? "" : input.value.trim());
  }

  return {
    element,
    input,
    /** Show a choice that was made elsewhere, unless the user is typing. */
    set(text) {
      chosen = text;
      if (document.activeElement !== input || !isOpen()) input.value = text;
    },
    complains: () => !problem.hidden,
    /** Show an error beside the field, or clear it. */
    complain(message) {
      problem.textContent = message ?? "";
      problem.hidden = !message;
      input.setAttribute("aria-invalid", String(Boolean(message)));
      if (message) input.setAttribute("aria-describedby", problem.id);
    },
  };
}

/** Return the options that start with the text, then those that contain it. */
export function matching(options, text) {
  const key = text.toLowerCase().replaceAll("_", " ");
  const place = (option) => option.label.toLowerCase().indexOf(key);
  const begins = options.filter((option) => place(option) === 0);
  return [...begins, ...options.filter((option) => place(option) > 0)];
}
