// Measuring and shortening of text.

const context = document.createElement("canvas").getContext("2d");
let family = "";

export function textWidth(text, size, weight = 400) {
  family ||= getComputedStyle(document.body).fontFamily;
  context.font = `${weight} ${size}px ${family}`;
  return context.measureText(text).width;
}

/** Shorten a text with "…" to fit into a width. */
export function fitted(text, width, size, weight = 400) {
  if (textWidth(text, size, weight) <= width) return text;
  const letters = [...text];
  let low = 0;
  let high = letters.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(`${letters.slice(0, middle).join("")}…`, size, weight) <= width) low = middle;
    else high = middle - 1;
  }
  return `${letters.slice(0, low).join("").trimEnd()}…`;
}

/** Break a text into at most two lines. */
export function inTwoLines(text, width, size, weight = 400) {
  const words = text.split(" ");
  let first = words.shift();
  while (words.length && textWidth(`${first} ${words[0]}`, size, weight) <= width) first += ` ${words.shift()}`;
  const lines = words.length ? [first, words.join(" ")] : [first];
  return lines.map((line) => fitted(line, width, size, weight));
}
