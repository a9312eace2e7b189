// Queries for one relation or for all relations, in batches that the server accepts.

import { predict } from "./api.js";

export const PORTION = 32; // questions in one request
export const MOST_RELATIONS = 320; // that "all relations" asks about, the most frequent ones
export const ALL = "";

/** The parts of a triple that are given: what is asked about stands at its head, or at its tail. */
export const question = (subject, relation, direction) =>
  direction === "heads" ? { relation, tail: subject } : { head: subject, relation };

/** The bodies of the requests; relations are ids or {text}. */
export function bodies(subject, relations, direction, k, known) {
  const queries = relations.map((relation) => question(subject, relation, direction));
  const portions = [];
  for (let start = 0; start < queries.length; start += PORTION) portions.push(queries.slice(start, start + PORTION));
  return portions.map((part) => ({ queries: part, k, known }));
}

/** Answers of each relation, told to `progress(found, asked)` after every portion: [{relation, answers}]. */
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

/** A new entity may be its own likeliest neighbour, which is no news. */
function isItself(answer, subject) {
  if (typeof subject === "string") return false;
  return /^new:\d+$/.test(answer.id) && answer.text === subject.text.trim().split(/\s+/).join(" ");
}

/** All answers as one list, the likeliest first. Only probabilities can be compared between relations. */
export function merged(found) {
  const all = found.flatMap(({ relation, answers }) => answers.map((answer) => ({ ...answer, relation })));
  return all.sort((one, other) => other.probability - one.probability || other.score - one.score);
}
