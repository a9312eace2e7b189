// Queries for one relation or for all relations, in batches that the server accepts.

import { predict } from "./api.js";

export const PORTION = 32; // queries per request
export const MOST_RELATIONS = 320; // "all relations" means this many of the most frequent ones
export const ALL = "";
export const LIKELY = 0.05; // links below this probability are folded away for "all relations"
export const UNLIKELY = 0.01; // queries with a lower probability of a missing answer are not searched for "all relations"

/** Return the query for the missing end of the subject's triples. */
export const question = (subject, relation, direction) =>
  direction === "heads" ? { relation, tail: subject } : { head: subject, relation };

/** Return the request bodies; relations are ids or {text}. */
export function bodies(subject, relations, direction, k, known, minMissing = 0) {
  const queries = relations.map((relation) => question(subject, relation, direction));
  const portions = [];
  for (let start = 0; start < queries.length; start += PORTION) portions.push(queries.slice(start, start + PORTION));
  return portions.map((part) => ({ queries: part, k, known, ...(minMissing && { min_missing: minMissing }) }));
}

/**
 * Fetch the answers of each relation as [{relation, missing, answers}], and call `progress(found)` after every request.
 * `missing` is the probability that the graph lacks an answer, or null. Below `minMissing`, there are no answers.
 */
export async function ask(subject, relations, direction, k, known, signal, progress, minMissing = 0) {
  const found = [];
  for (const body of bodies(subject, relations, direction, k, known, minMissing)) {
    const results = await predict(body, signal);
    for (const { answers, missing_answer: missing } of results) {
      found.push({
        relation: relations[found.length],
        missing,
        answers: answers.filter((answer) => !isItself(answer, subject)),
      });
    }
    progress(found);
  }
  return found;
}

/** Return whether the answer is the new entity itself, which is not shown. */
function isItself(answer, subject) {
  if (typeof subject === "string") return false;
  return /^new:\d+$/.test(answer.id) && answer.text === subject.text.trim().split(/\s+/).join(" ");
}

/** Merge all answers into one list, the likeliest first. Only probabilities are comparable between relations. */
export function merged(found) {
  const all = found.flatMap(({ relation, answers }) => answers.map((answer) => ({ ...answer, relation })));
  return all.sort((one, other) => (other.probability ?? 0) - (one.probability ?? 0) || other.score - one.score);
}

/** Split the answers of all relations into those with a likely link, likeliest first, and the other relations. */
export function byLikelihood(found, known) {
  const best = ({ answers }) => Math.max(...answers.map(({ probability }) => probability ?? 0), 0);
  const shown = (one) => best(one) >= LIKELY || (known && one.answers.some((answer) => answer.known));
  const likely = found.filter(shown).sort((one, other) => best(other) - best(one));
  return [likely, found.filter((one) => !shown(one))];
}
