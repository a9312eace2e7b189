// Elements from JavaScript. Strings become text nodes, never markup, so nothing that a server says can run.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. `on…` are listeners, `vars` are CSS variables; null, undefined and false leave one out. */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "vars")
      for (const [key, number] of Object.entries(value)) element.style.setProperty(`--${key}`, number);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** Only the newest of several calls counts: each one aborts the signal that the last one got. */
export function latest() {
  let current = null;
  return () => {
    current?.abort();
    current = new AbortController();
    return current.signal;
  };
}

/** Calls once the calls have stopped for a while; `.now()` at once. */
export function debounced(action, milliseconds) {
  let timer = 0;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
  later.now = (...values) => {
    clearTimeout(timer);
    action(...values);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

let count = 0;
/** An id for `aria-controls` and the like. */
export const freshId = (prefix) => `${prefix}-${++count}`;
