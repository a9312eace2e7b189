// Helpers for DOM elements. Strings become text nodes, never markup, so that server data cannot run as code.

const SVG = "http://www.w3.org/2000/svg";

/** Create an HTML element. `on…` are listeners, `vars` are CSS variables; null, undefined and false are skipped. */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Create an SVG element. */
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

/** Return a function that returns an AbortSignal and aborts the previous one. */
export function latest() {
  let current = null;
  return () => {
    current?.abort();
    current = new AbortController();
    return current.signal;
  };
}

/** Debounce a function; `.now()` calls it immediately. */
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
/** Create a unique element id, for example for `aria-controls`. */
export const freshId = (prefix) => `${prefix}-${++count}`;
