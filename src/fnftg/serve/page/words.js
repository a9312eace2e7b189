// Numbers and names as people write them.

const whole = new Intl.NumberFormat("en");

export const number = (value) => whole.format(value);

/** "1 link", "2 links". */
export const counted = (value, noun) => `${number(value)} ${value === 1 ? noun : plural(noun)}`;

const plural = (noun) => (noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : `${noun}s`);

/** A score or a distance: as many digits as tell two of them apart. */
export function decimal(value) {
  if (value === null) return "–"; // JSON has no word for "not a number"
  const size = Math.abs(value);
  return minus(value.toFixed(size >= 100 ? 1 : size >= 1 ? 2 : 3));
}

/** An effect, always with its sign. */
export const signed = (value) => (value > 0 ? "+" : "") + decimal(value);

/** A probability in per cent. */
export function percent(value) {
  if (value > 0 && value < 0.001) return "< 0.1 %";
  return `${(100 * value).toFixed(value < 0.1 || (value > 0.99 && value < 1) ? 1 : 0)} %`;
}

/** A rank, which is a half where candidates tie. */
export const rank = (value) => (Number.isInteger(value) ? number(value) : value.toFixed(1));

/** Names of some datasets join their words. */
export const spoken = (name) => name.replaceAll("_", " ").trim() || name;

export const cut = (text, most) => (text.length <= most ? text : `${[...text].slice(0, most - 1).join("")}…`);

/** What follows the name at the start of many texts: "dog, a member of…" gives "a member of…". */
export function rest(text, name) {
  if (!text.toLowerCase().startsWith(name.toLowerCase())) return text;
  return text.slice(name.length).replace(/^[\s,;:.–-]+/, "");
}

const minus = (text) => text.replace("-", "−");
