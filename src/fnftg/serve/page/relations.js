// Which relations can be asked about, and which one is unless one is chosen.

import { ALL } from "./queries.js";
import { matching } from "./combobox.js";
import { counted, spoken } from "./words.js";

const FEW = 64; // relations that are all asked about unless one is chosen

/** What is asked about where nothing is chosen: everything, or the most frequent relation where there are very many. */
export const usualRelation = (graph) => (graph.relations.length <= FEW ? ALL : graph.relations[0].id);

/** "All relations", then those that match, then the words themselves as a relation that the graph does not have. */
export function relationOptions(graph, text, all = true, own = true) {
  const options = graph.relations.map(({ id, name, triples }) => ({
    label: spoken(name),
    note: counted(triples, "triple"),
    value: id,
  }));
  const first = all ? [{ label: "all relations", note: null, value: ALL }] : [];
  const found = text ? matching([...first, ...options], text) : [...first, ...options];
  const exact = found.some(({ label }) => label.toLowerCase() === text.toLowerCase());
  if (own && text && !exact) found.push({ label: `“${text}”`, note: "in your own words", value: text, fresh: true });
  return found;
}
