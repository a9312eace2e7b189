// The options for the relation of a query.

import { ALL } from "./queries.js";
import { matching } from "./combobox.js";
import { counted, spoken } from "./words.js";

const FEW = 64; // graphs with up to this many relations query all of them by default

/** Return the default relation: all relations, or the most frequent one if there are very many. */
export const usualRelation = (graph) => (graph.relations.length <= FEW ? ALL : graph.relations[0].id);

/** Return "all relations", the relations that match the text, and the text itself as a new relation. */
export function relationOptions(graph, text, all = true, own = true) {
  const options = graph.relations.map(({ id, name, triples }) => ({
    label: spoken(name),
    note: counted(triples, "triple"),
    value: id,
  }));
  const first = all ? [{ label: "all relations", note: null, value: ALL }] : [];
  const found = text ? matching([...first, ...options], text) : [...first, ...options];
  const exact = found.some(({ label }) => label.toLowerCase() === text.toLowerCase());
  if (own && text && !exact) found.push({ label: `“${text}”`, note: "new relation", value: text, fresh: true });
  return found;
}
