// Queries for one relation or for all relations, in batches that the server accepts.

import { predict } from "./api.js";

export const PORTION = 32; // queries per request
export const MOST_RELATIONS = 320; // "all relations" means this many of the most frequent ones
export const ALL = "";

/** Return the query for the missing end of the subject's triples. */
export const question = (subject, relation, direction) =>
  direction === "heads" ? { relation, tail: subject } : { head: subject, relation };

/** Return the request bodies; relations are ids or {text}. */
export function bodies(subject, relations, direction, k, known) {
  const queries = relations.map((relation) => question(subject, relation, direction));
  const portions = [];
  for (let start = 0; start < queries.length; start += PORTION) portions.push(queries.slice(start, start + PORTION));
  return portions.map((part) => ({ queries: part, k, known }));
}

/** Fetch the answers of each relation as [{relation, answers}], and call `progress(found)` after every request. */
export async function ask(subject, relations, direction, k, known, signal, progress) {
  const found = [];
  for (const body of bodies(subject, relations, direction, k, known)) {
    const results = await predict(body, signal);
    for (const { answers } of results) {
      found.push({
        relation: relations[found.length],
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
  return all.sort((one, other) => other.probability - one.probability || other.score - one.score);
}
