// The explanation of an answer: the effect of each edge, word and source of evidence on the score, and the nearest
// training triples.

import { aborted, explain } from "./api.js";
import { h, latest } from "./dom.js";
import { reasonsGraph } from "./graph.js";
import { entityLink } from "./route.js";
import { failure, skeleton } from "./states.js";
import { counted, decimal, number, percent, rank, signed, spoken } from "./words.js";

const ITEMS = 5; // items shown per source of evidence

/** Create a dialog {open(body), close()}; `onclose` is called when the user closes it. */
export function reasonsDialog(graph, onclose) {
  const newest = latest();
  const content = h("div", { class: "reasons" });
  const button = h(
    "button",
    { type: "button", class: "quiet round close", "aria-label": "Close the reasons", onclick: () => dialog.close() },
    "×",
  );
  const dialog = h("dialog", { class: "sheet", "aria-label": "Reasons" }, button, content);
  let current = null;
  dialog.addEventListener("close", () => {
    newest();
    if (current !== null) onclose();
    current = null;
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close()); // a click outside
  document.body.append(dialog);

  async function load(body) {
    const signal = newest();
    content.replaceChildren(skeleton(2), skeleton(6, "picture"), skeleton(4));
    try {
      const found = await explain(body, signal);
      if (!signal.aborted) content.replaceChildren(...painted(graph, found));
    } catch (error) {
      if (!aborted(error) && !signal.aborted) content.replaceChildren(failure(error, () => load(body)));
    }
  }

  return {
    open(body) {
      const key = JSON.stringify(body);
      if (key === current) return;
      current = key;
      if (!dialog.open) dialog.showModal();
      content.scrollTop = 0;
      load(body);
    },
    close() {
      current = null; // closed by the page, so do not call onclose
      if (dialog.open) dialog.close();
    },
  };
}

function painted(graph, found) {
  const relation = spoken(found.relation.name);
  return [
    h(
      "h2",
      { class: "triple" },
      end(found.head, found.asked === "head"),
      h("span", { class: "triple-relation" }, h("span", {}, relation), h("span", { "aria-hidden": "true" }, "→")),
      end(found.tail, found.asked === "tail"),
    ),
    figures(found),
    missingAnswers(found, relation),
    picture(graph, found, relation),
    h("div", { class: "columns" }, words(found, "query"), words(found, "candidate")),
    ...evidence(graph, found),
    nearest(found, relation),
  ].filter(Boolean);
}

const end = (entity, asked) =>
  h("span", { class: asked ? "triple-end asked" : "triple-end", title: entity.text }, entity.name);

function figures(found) {
  const figure = (name, ...value) => h("div", { class: "figure" }, h("dt", {}, name), h("dd", {}, ...value));
  return h(
    "div",
    { class: "figures" },
    h(
      "dl",
      {},
      figure("Rank", rank(found.rank), h("small", {}, ` of ${number(found.candidates)}`)),
      found.probability !== null && figure("Probability", percent(found.probability)),
      found.conditional !== null && figure("Given an answer", percent(found.conditional)),
      figure("Score", decimal(found.score)),
    ),
    found.hidden &&
      h(
        "p",
        { class: "remark" },
        "This triple is in the graph. It was hidden from the model here, as in evaluation.",
      ),
  );
}

// Missing answers

function missingAnswers(found, relation) {
  if (!found.queries.length) return null;
  const name = ({ asked }) =>
    asked === "tail" ? `${found.head.name} → ${relation} → ?` : `? → ${relation} → ${found.tail.name}`;
  return h(
    "section",
    {},
    h("h3", {}, "Is a link missing?"),
    h(
      "ul",
      { class: "missing" },
      found.queries.map((query) =>
        h("li", {}, h("b", {}, name(query)), ` ${percent(query.probability)}. `, query.sentences.join(" ")),
      ),
    ),
  );
}

// Links

function picture(graph, found, relation) {
  const strongest = Math.max(
    ...[found.query, found.candidate].flatMap(({ edges }) => edges.map(({ effect }) => Math.abs(effect))),
    1e-12,
  );
  const side = ({ entity, edges }) => ({
    centre: { name: entity.name, title: entity.text },
    rows: edges.map((edge) => edgeRow(graph, edge, strongest)),
  });
  const link = {
    label: relation,
    forward: found.asked === "tail",
    title: `${found.head.name} → ${relation} → ${found.tail.name}`,
  };
  const [query, candidate] = [side(found.query), side(found.candidate)];
  const { element, drawn } = reasonsGraph(query, candidate, link);
  const left = [query, candidate]
    .map(({ centre, rows }, place) => [rows.length - drawn[place], centre.name])
    .filter(([count]) => count > 0);
  return h(
    "section",
    {},
    h("h3", {}, "Most important links"),
    legend(),
    element,
    left.length > 0 &&
      h(
        "p",
        { class: "remark" },
        `Not shown: ${left.map(([count, name]) => `${counted(count, "link")} of ${name}`).join(", ")} with smaller effects.`,
      ),
    !query.rows.length &&
      !candidate.rows.length &&
      h("p", { class: "remark" }, "Neither entity has links. The score depends only on the texts."),
  );
}

function edgeRow(graph, edge, strongest) {
  const label = spoken(graph.relationName(edge.edge.relation));
  const attention = edge.attention && edge.attention.reduce((sum, share) => sum + share, 0) / edge.attention.length;
  const said = [
    `${edge.neighbour.name} (${label}): ${signed(edge.effect)} to the score`,
    `without it: score ${decimal(edge.score_without)}, rank ${rank(edge.rank_without)}`,
    attention !== null && attention !== undefined && `attention ${percent(attention)}`,
    edge.neighbour.text,
  ];
  return {
    name: edge.neighbour.name,
    title: said.filter(Boolean).join("\n"),
    label,
    away: edge.edge.direction === "out",
    href: entityLink(edge.neighbour.id),
    effect: (edge.effect ?? 0) / strongest,
    note: signed(edge.effect),
  };
}

function legend() {
  const entry = (kind, text) => h("span", { class: `legend-entry ${kind}` }, h("span", { class: "swatch" }), text);
  return h(
    "p",
    { class: "legend" },
    entry("for", "raises the score"),
    entry("against", "lowers the score"),
    h("span", { class: "soft" }, "The wider the line, the larger the effect on the score."),
  );
}

// Words

function words(found, which) {
  const side = found[which];
  const all = [...found.query.words, ...found.candidate.words].map(({ effect }) => Math.abs(effect));
  const strongest = Math.max(...all, 1e-12);
  const read = side.words.flatMap((word) => [tinted(word, strongest), " "]);
  const beyond = side.entity.text.split(/\s+/).filter(Boolean).slice(side.words.length).join(" ");
  return h(
    "section",
    {},
    h(
      "h3",
      {},
      which === "query" ? "Words of the query entity: " : "Words of the answer: ",
      h("span", { class: "soft" }, side.entity.name),
    ),
    side.words.length
      ? h(
          "p",
          { class: "words" },
          read,
          beyond && h("span", { class: "unread", title: "The model does not read these words." }, beyond),
        )
      : h("p", { class: "words" }, side.entity.text, h("span", { class: "unread" }, " (the effect of a single word is not computed)")),
  );
}

function tinted(word, strongest) {
  const strength = Math.abs(word.effect) / strongest;
  const without = `score ${decimal(word.score_without)}, rank ${rank(word.rank_without)}`;
  const title = `${signed(word.effect)} to the score; without it: ${without}`;
  return h(
    "span",
    { class: `word ${word.effect >= 0 ? "for" : "against"}`, vars: { strength: strength.toFixed(3) }, title },
    word.word,
  );
}

// Evidence: all sources are shown in the same way.

function evidence(graph, found) {
  return found.evidence.map((source) => {
    const { effect, title, sentence, items, rank_without: without } = source;
    const more = items.length > ITEMS ? `${counted(items.length, "item")} in all. ` : "";
    return h(
      "section",
      { class: "evidence" },
      h("h3", {}, capitalised(title)),
      sentence && h("p", { class: "sentence" }, sentence),
      items.length > 0 &&
        h(
          "ol",
          { class: "nearest" },
          items.slice(0, ITEMS).map((item) => evidenceItem(graph, item, source.value_name)),
        ),
      h(
        "p",
        { class: "remark" },
        `${more}${signed(effect)} to the score; without this evidence: rank ${without === null ? "–" : rank(without)}.`,
      ),
    );
  });
}

const capitalised = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function evidenceItem(graph, { entity, relation, value }, valueName) {
  const arrow = relation && (relation.direction === "out" ? "→" : "←");
  const step = relation && h("span", { class: "soft" }, `${spoken(graph.relationName(relation.relation))} ${arrow}`);
  return h(
    "li",
    {},
    h("span", { class: "near" }, step, step && entity && " ", entity && visit(entity)),
    value !== null && h("span", { class: "number soft", title: capitalised(valueName ?? "value") }, decimal(value)),
  );
}

// Triples

function nearest(found, relation) {
  if (!found.nearest.length) return "";
  const row = ({ head, tail, distance }) =>
    h(
      "li",
      {},
      h("span", { class: "near" }, visit(head), h("span", { class: "soft" }, ` ${relation} → `), visit(tail)),
      h("span", { class: "number soft", title: "Distance of the heads plus distance of the tails (L1)" }, decimal(distance)),
    );
  return h(
    "section",
    {},
    h("h3", {}, "Nearest training triples"),
    h("ol", { class: "nearest" }, found.nearest.map(row)),
    h(
      "p",
      { class: "remark" },
      `${counted(found.nearest.length, "triple")} with this relation, ranked by the distance of the heads plus that of the tails.`,
    ),
  );
}

const visit = (entity) => h("a", { href: entityLink(entity.id), title: entity.text }, entity.name);
