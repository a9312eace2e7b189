// Formatting of numbers and names.

const whole = new Intl.NumberFormat("en");

export const number = (value) => whole.format(value);

/** "1 link", "2 links". */
export const counted = (value, noun) => `${number(value)} ${value === 1 ? noun : plural(noun)}`;

const plural = (noun) => (noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : `${noun}s`);

/** Format a score or a distance, with fewer decimals for larger values. */
export function decimal(value) {
  if (value === null) return "–"; // NaN is null in JSON
  const size = Math.abs(value);
  return minus(value.toFixed(size >= 100 ? 1 : size >= 1 ? 2 : 3));
}

/** Format an effect with its sign. */
export const signed = (value) => (value > 0 ? "+" : "") + decimal(value);

/** Format a probability in per cent. */
export function percent(value) {
  if (value > 0 && value < 0.001) return "< 0.1 %";
  return `${(100 * value).toFixed(value < 0.1 || (value > 0.99 && value < 1) ? 1 : 0)} %`;
}

/** Format a rank, which may end in .5 if candidates tie. */
export const rank = (value) => (Number.isInteger(value) ? number(value) : value.toFixed(1));

/** Replace the underscores that some datasets have in names. */
export const spoken = (name) => name.replaceAll("_", " ").trim() || name;

export const cut = (text, most) => (text.length <= most ? text : `${[...text].slice(0, most - 1).join("")}…`);

/** Return a text without the name at its start: "dog, a member of…" becomes "a member of…". */
export function rest(text, name) {
  if (!text.toLowerCase().startsWith(name.toLowerCase())) return text;
  return text.slice(name.length).replace(/^[\s,;:.–-]+/, "");
}

const minus = (text) => text.replace("-", "−");
