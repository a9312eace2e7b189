// Why an answer: what each link and each word of both sides adds to the score, lookalikes, and the most similar triples.

import { aborted, explain } from "./api.js";
import { h, latest } from "./dom.js";
import { reasonsGraph } from "./graph.js";
import { entityLink } from "./route.js";
import { failure, skeleton } from "./states.js";
import { counted, decimal, number, percent, rank, signed, spoken } from "./words.js";

const VOTERS = 5; // lookalikes that are shown

/** A dialog {open(body), close()}; `onclose` is told when the reader closes it. */
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
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close()); // beside the sheet
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
      current = null; // the page knows already
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
    picture(graph, found, relation),
    h("div", { class: "columns" }, words(found, "query"), words(found, "candidate")),
    voters(found),
    parallels(graph, found),
    mentions(found),
    precedents(found),
    nearest(found, relation),
  ];
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
      figure("Score", decimal(found.score)),
    ),
    found.hidden &&
      h(
        "p",
        { class: "remark" },
        "This link is in the graph; it was hidden from the model here, so that it is no reason for itself.",
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
    h("h3", {}, "Links that matter"),
    legend(),
    element,
    left.length > 0 &&
      h(
        "p",
        { class: "remark" },
        `And ${left.map(([count, name]) => `${number(count)} more of ${name}`).join(", ")}, all weaker.`,
      ),
    !query.rows.length &&
      !candidate.rows.length &&
      h("p", { class: "remark" }, "Neither side has links: the texts alone decide."),
  );
}

function edgeRow(graph, edge, strongest) {
  const label = edge.steps.map((step) => spoken(graph.relationName(step.relation))).join(" / ");
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
    away: edge.steps[0].direction === "out",
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
    entry("for", "speaks for the answer"),
    entry("against", "speaks against it"),
    h("span", { class: "soft" }, "The wider, the more the score would change without it."),
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
      which === "query" ? "Words of the question: " : "Words of the answer: ",
      h("span", { class: "soft" }, side.entity.name),
    ),
    side.words.length
      ? h(
          "p",
          { class: "words" },
          read,
          beyond && h("span", { class: "unread", title: "The model reads no further." }, beyond),
        )
      : h("p", { class: "words" }, side.entity.text, h("span", { class: "unread" }, " (one word has none to spare)")),
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

// Triples

const similar = ({ entity, similarity }) =>
  h(
    "li",
    {},
    h("span", { class: "near" }, visit(entity)),
    h("span", { class: "number soft", title: "Similarity of the texts" }, decimal(similarity)),
  );

function voters(found) {
  if (!found.votes?.voters.length) return "";
  const { effect, rank_without: without, voters: all } = found.votes;
  return h(
    "section",
    {},
    h("h3", {}, "Lookalikes with the same answer"),
    h("ol", { class: "nearest" }, all.slice(0, VOTERS).map(similar)),
    h(
      "p",
      { class: "remark" },
      `${counted(all.length, "lookalike")}, ${signed(effect)} to the score; without votes: rank ${rank(without)}.`,
    ),
  );
}

function parallels(graph, found) {
  if (!found.parallels?.edges.length) return "";
  const { effect, rank_without: without, edges } = found.parallels;
  const row = ({ relation, direction }) =>
    h("li", {}, h("span", {}, spoken(graph.relationName(relation)), direction === "out" ? " →" : " ←"));
  return h(
    "section",
    {},
    h("h3", {}, "What joins the two already"),
    h("ol", { class: "nearest" }, edges.map(row)),
    h("p", { class: "remark" }, `${signed(effect)} to the score; without parallels: rank ${rank(without)}.`),
  );
}

function mentions(found) {
  if (!found.mentions?.names && !found.mentions?.named) return "";
  const { effect, rank_without: without, names, named } = found.mentions;
  const [asked, answer] = [found.query.entity.name, found.candidate.entity.name];
  const row = (who, whom) => h("li", {}, h("span", {}, `The text of ${who} names ${whom}.`));
  return h(
    "section",
    {},
    h("h3", {}, "What the texts say"),
    h("ol", { class: "nearest" }, names ? row(asked, answer) : "", named ? row(answer, asked) : ""),
    h("p", { class: "remark" }, `${signed(effect)} to the score; without mentions: rank ${rank(without)}.`),
  );
}

function precedents(found) {
  if (!found.precedents?.alike.length && !found.precedents?.others) return "";
  const { effect, rank_without: without, alike, others } = found.precedents;
  const said = [
    alike.length ? `${counted(alike.length, "answer")} of ${found.query.entity.name} like it` : "",
    others ? `${counted(others, "other")} with the same answer` : "",
  ].filter(Boolean);
  return h(
    "section",
    {},
    h("h3", {}, "How the relation was answered before"),
    alike.length ? h("ol", { class: "nearest" }, alike.slice(0, VOTERS).map(similar)) : "",
    h(
      "p",
      { class: "remark" },
      `${said.join(", ")}: ${signed(effect)} to the score; without precedents: rank ${rank(without)}.`,
    ),
  );
}

function nearest(found, relation) {
  if (!found.nearest.length) return "";
  const row = ({ head, tail, distance }) =>
    h(
      "li",
      {},
      h("span", { class: "near" }, visit(head), h("span", { class: "soft" }, ` ${relation} → `), visit(tail)),
      h("span", { class: "number soft", title: "Distance of both ends together" }, decimal(distance)),
    );
  return h(
    "section",
    {},
    h("h3", {}, "Most similar links in training"),
    h("ol", { class: "nearest" }, found.nearest.map(row)),
    h(
      "p",
      { class: "remark" },
      `${counted(found.nearest.length, "triple")} with this relation, by the distance of both ends to this pair.`,
    ),
  );
}

const visit = (entity) => h("a", { href: entityLink(entity.id), title: entity.text }, entity.name);
