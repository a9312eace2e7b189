// The query form (relation, direction, known links) and the ranked answers, for known and new entities.

import { aborted } from "./api.js";
import { ALL, LIKELY, MOST_RELATIONS, UNLIKELY, ask, byLikelihood, merged } from "./queries.js";
import { combobox } from "./combobox.js";
import { h, latest } from "./dom.js";
import { elsewhere } from "./snippets.js";
import { placesOf, slide } from "./motion.js";
import { relationOptions } from "./relations.js";
import { entityLink } from "./route.js";
import { empty, failure, skeleton } from "./states.js";
import { counted, cut, decimal, number, percent, rest, spoken } from "./words.js";

const STEPS = [10, 30, 100]; // number of answers; "Show more" goes to the next
const IN_GROUPS = 3; // answers per relation when grouped by relation
const GROUPS = 12; // answers are grouped by default up to this number of relations

/**
 * `graph` is {relations, relationName, calibrated}. `onchange(part, replace)` gets the changed part of the route,
 * `onwhy(answer)` the answer to explain. `onproblem(error)` returns true if it shows a 422 error beside a field.
 */
export function answersPanel({ graph, heading, onchange, onwhy, onproblem = () => false }) {
  const newest = latest();
  let state = null;
  let step = 0;
  let shown = ""; // the query whose answers are on the page

  const relation = combobox({
    label: "Relation",
    placeholder: "all relations, or your own words",
    keep: true,
    source: async (text) => relationOptions(graph, text),
    onpick: ({ value, fresh }) =>
      onchange(fresh ? { relation: "", words: value } : { relation: value || "*", words: "" }),
    onempty: () => onchange({ relation: "*", words: "" }),
  });
  const known = h("input", { type: "checkbox", onchange: () => onchange({ known: known.checked ? "1" : "" }, true) });
  const ways = ["tails", "heads"].map((way) => {
    const input = h("input", {
      type: "radio",
      name: "direction",
      value: way,
      onchange: () => onchange({ direction: way === "tails" ? "" : way }),
    });
    return { way, input, words: h("span", {}) };
  });
  const results = h("div", { class: "results" });
  const spokenSummary = h("p", { class: "unseen", role: "status" }); // for screen readers, instead of the whole list
  const copying = elsewhere();
  const element = h(
    "section",
    { class: "card answers", "aria-label": "Predicted links" },
    h("h2", {}, heading),
    h(
      "div",
      { class: "question" },
      h("div", { class: "field" }, h("span", { class: "field-name" }, "Relation"), relation.element),
      h(
        "fieldset",
        { class: "segments" },
        h("legend", { class: "field-name" }, "Predict"),
        ways.map(({ input, words }) => h("label", {}, input, words)),
      ),
      h("label", { class: "switch" }, known, h("span", {}, "Show known links")),
    ),
    spokenSummary,
    results,
    copying.element,
  );

  /** Return the relations of the query, as ids or {text}. */
  function asked() {
    if (state.words) return [{ text: state.words }];
    if (state.relation !== ALL) return [state.relation];
    return graph.relations.slice(0, MOST_RELATIONS).map(({ id }) => id);
  }

  const isAll = () => !state.words && state.relation === ALL;
  const inGroups = () => isAll() && (!graph.calibrated || state.list === "groups");
  const wanted = () => (inGroups() ? [IN_GROUPS, ...STEPS][step] : STEPS[step]);

  /** Show {subject, name, relation, words, direction, known, list}; a null subject means that there is no query yet. */
  function show(next, waiting) {
    const usualList = graph.relations.length <= GROUPS ? "groups" : "one";
    state = { ...next, list: next.list || usualList };
    relation.set(
      state.words
        ? `“${state.words}”`
        : state.relation === ALL
          ? "all relations"
          : spoken(graph.relationName(state.relation)),
    );
    known.checked = state.known;
    const name = cut(state.name, 24);
    for (const { way, input, words } of ways) {
      input.checked = way === state.direction;
      words.textContent = way === "tails" ? `${name} → ?` : `? → ${name}`;
    }
    if (!state.subject) {
      newest();
      shown = "";
      copying.element.hidden = true;
      results.replaceChildren(waiting);
      return;
    }
    const key = JSON.stringify([state.subject, state.relation, state.words, state.direction, state.known, state.list]);
    if (key === shown) return;
    shown = key;
    step = 0;
    load();
  }

  async function load() {
    const signal = newest();
    const relations = asked();
    const k = wanted();
    relation.complain(null);
    copying.element.hidden = false;
    copying.show({
      subject: state.subject,
      relations,
      all: isAll(),
      direction: state.direction,
      k,
      known: state.known,
    });
    if (results.querySelector(".answer")) results.setAttribute("aria-busy", "true");
    else results.replaceChildren(skeleton(8, "rows"));
    const progress = (found) => {
      if (signal.aborted) return;
      if (found.length < relations.length && found.length % 96) return; // repaint less often
      paint(found, relations.length);
    };
    try {
      const pruned = isAll() && graph.calibrated && !state.known ? UNLIKELY : 0;
      await ask(state.subject, relations, state.direction, k, state.known, signal, progress, pruned);
      onproblem(null);
    } catch (error) {
      if (aborted(error) || signal.aborted) return;
      shown = ""; // allow a retry
      results.removeAttribute("aria-busy");
      if (error.status === 422 && /(^|\.)relation(\.|$)/.test(error.field ?? "")) relation.complain(error.message);
      const marked = onproblem(error);
      results.replaceChildren(
        marked ? empty("Check the input", "The marked field shows the problem.") : failure(error, load),
      );
    }
  }

  function paint(found, all) {
    const places = placesOf(results);
    const parts = [];
    if (found.length < all)
      parts.push(h("p", { class: "remark" }, `${number(found.length)} of ${number(all)} relations done…`));
    if (isAll() && graph.calibrated) parts.push(lists(), ...ofAll(found));
    else if (!found.some(({ answers }) => answers.length)) {
      parts.push(
        empty(
          "No new answers",
          "Every candidate is a known link. ",
          "Turn on “Show known links” to see them.",
        ),
      );
    } else if (!isAll()) parts.push(list(found[0].answers, found[0].relation));
    else parts.push(...found.filter(({ answers }) => answers.length).map(group));
    parts.push(...notes(found));
    results.replaceChildren(...parts);
    results.removeAttribute("aria-busy");
    const best = results.querySelector(".answer b")?.textContent;
    spokenSummary.textContent = best
      ? `${counted(results.querySelectorAll(".answer").length, "answer")}, the first is ${best}`
      : "No answers";
    slide(results, places);
  }

  /** Show the likely links of all relations; relations without any are folded away. */
  function ofAll(found) {
    const [likely, others] = byLikelihood(found, state.known);
    const othersCount = counted(others.length, "relation");
    const shown = inGroups()
      ? likely.map(group)
      : [list(merged(likely).filter(({ probability, known: isKnown }) => isKnown || probability >= LIKELY).slice(0, wanted()), null)];
    return [
      ...(likely.length ? shown : [empty("No missing link expected", "The graph seems to have all links of this entity.")]),
      others.length > 0 &&
        h(
          "details",
          { class: "unlikely" },
          h("summary", {}, likely.length ? `No missing link expected: ${othersCount}` : `Show ${othersCount}`),
          h(
            "ul",
            {},
            others.map(({ relation: id, missing, answers }) =>
              h(
                "li",
                {},
                h(
                  "button",
                  { type: "button", class: "plain", onclick: () => onchange({ relation: id, words: "" }) },
                  spoken(graph.relationName(id)),
                ),
                missing !== null && ` missing answer: ${percent(missing)}`,
                answers.length > 0 && `, best ${answers[0].name} ${percent(answers[0].probability ?? 0)}`,
              ),
            ),
          ),
        ),
    ].filter(Boolean);
  }

  function notes(found) {
    const more = step + 1 < STEPS.length && found.some(({ answers }) => answers.length >= wanted() - 1);
    const skipped = isAll() ? graph.relations.length - MOST_RELATIONS : 0;
    return [
      more && h("button", { type: "button", class: "quiet more", onclick: () => (step++, load()) }, "Show more"),
      skipped > 0 &&
        h(
          "p",
          { class: "remark" },
          `These are the ${MOST_RELATIONS} most frequent relations. Choose one of the other ${number(skipped)} by name.`,
        ),
      graph.calibrated &&
        found.length === 1 &&
        found[0].missing !== null &&
        h("p", { class: "remark" }, `Probability that the graph lacks an answer: ${percent(found[0].missing)}.`),
      !graph.calibrated &&
        h("p", { class: "remark" }, "Scores are not probabilities. Run ", h("code", {}, "fnftg calibrate"), " to get them."),
    ].filter(Boolean);
  }

  /** Create the choice between one list and a list per relation, if the model is calibrated. */
  function lists() {
    if (!graph.calibrated) return "";
    const choice = (kind, words) =>
      h(
        "button",
        {
          type: "button",
          class: "plain",
          "aria-pressed": String(state.list === kind),
          onclick: () => onchange({ list: kind }, true),
        },
        words,
      );
    return h("div", { class: "lists" }, choice("groups", "By relation"), choice("one", "Most likely first"));
  }

  function group({ relation: id, answers }) {
    const choose = () => onchange({ relation: id, words: "" });
    return h(
      "section",
      { class: "group" },
      h(
        "h3",
        {},
        h(
          "button",
          { type: "button", class: "plain", title: "Show only this relation", onclick: choose },
          spoken(graph.relationName(id)),
        ),
      ),
      list(answers, id),
    );
  }

  /** Create a ranked list. If `only` is null, each answer shows its relation. */
  function list(answers, only) {
    const scores = answers.map(({ score }) => score ?? 0);
    const [best, worst] = [Math.max(...scores), Math.min(...scores)];
    const share = ({ probability, score }) =>
      probability ?? (graph.calibrated ? 0 : best === worst ? 1 : 0.05 + (0.95 * (score - worst)) / (best - worst));
    return h(
      "ol",
      {},
      answers.map((answer, place) => row(answer, only, share(answer), place + 1)),
    );
  }

  function row(answer, only, share, rank) {
    const id = only ?? answer.relation;
    const scored = answer.probability === null && !(graph.calibrated && answer.known);
    const value = answer.probability !== null ? percent(answer.probability) : scored ? decimal(answer.score) : "";
    const kind = answer.probability === null ? "Score" : "Probability";
    return h(
      "li",
      { class: answer.known ? "answer known" : "answer", "data-key": `${JSON.stringify(id)} ${answer.id}` },
      h(
        "button",
        {
          type: "button",
          class: "answer-main",
          "aria-haspopup": "dialog",
          title: "Why?",
          onclick: () => onwhy({ ...answer, relation: id }),
        },
        h("span", { class: "rank" }, number(rank)),
        h(
          "span",
          { class: "answer-words" },
          h(
            "span",
            { class: "answer-name" },
            h("b", {}, answer.name),
            answer.known && h("span", { class: "badge" }, "known"),
            answer.id === state.subject && h("span", { class: "badge itself" }, "itself"),
          ),
          only === null &&
            h(
              "span",
              { class: "answer-relation" },
              state.direction === "tails" ? "→ " : "← ",
              spoken(graph.relationName(id)),
            ),
          h("span", { class: "answer-text" }, rest(answer.text, answer.name)),
        ),
        h(
          "span",
          { class: "answer-value" },
          h("span", { class: "number", "aria-label": `${kind} ${value}` }, value),
          h("span", { class: "bar", vars: { share: `${(100 * share).toFixed(1)}%` } }, h("span", {})),
        ),
      ),
      h(
        "a",
        {
          class: "visit",
          href: entityLink(answer.id),
          title: `Go to ${answer.name}`,
          "aria-label": `Go to ${answer.name}`,
        },
        "→",
      ),
    );
  }

  return { element, show };
}
