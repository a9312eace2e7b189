// The home view: examples and the relations of the graph.

import { search } from "./api.js";
import { h } from "./dom.js";
import { recent } from "./recent.js";
import { entityLink } from "./route.js";
import { number, spoken } from "./words.js";

const SHOWN = 12; // relations
const EXAMPLES = 7;
const LOOKED_AT = 100; // entities from which the best connected are chosen as examples

export function homeView(page) {
  const { graph } = page;
  page.title("");
  const leaving = new AbortController();
  const chips = h("section", { class: "chips" });
  const fill = (title, entities) => {
    const links = entities.map(({ id, name }) => h("a", { class: "chip", href: entityLink(id) }, name));
    chips.replaceChildren(h("span", { class: "soft" }, title), ...links);
  };
  const lately = recent(graph);
  if (lately.length) fill("Recent", lately);
  else
    examples(leaving.signal).then(
      (found) => found.length && fill("Try", found),
      () => {},
    ); // examples are optional
  const most = Math.max(...graph.relations.map(({ triples }) => triples), 1);
  const element = h(
    "div",
    { class: "home-cards" },
    chips,
    h(
      "a",
      { class: "card invite", href: "#/new" },
      h("h2", {}, "Describe a new entity"),
      h(
        "p",
        {},
        "Describe an entity that is not in the graph, and add links if you like. Predictions update as you type.",
      ),
      h("span", { class: "go", "aria-hidden": "true" }, "→"),
    ),
    h(
      "section",
      { class: "card" },
      h("h2", {}, "Relations"),
      h(
        "ul",
        { class: "relations" },
        graph.relations
          .slice(0, SHOWN)
          .map(({ name, text, triples }) =>
            h(
              "li",
              { title: text },
              h("span", {}, spoken(name)),
              h("span", { class: "number soft" }, number(triples)),
              h("span", { class: "bar", vars: { share: `${(100 * triples) / most}%` } }, h("span", {})),
            ),
          ),
      ),
      graph.relations.length > SHOWN &&
        h("p", { class: "remark" }, `and ${number(graph.relations.length - SHOWN)} more`),
    ),
  );
  return { element, update() {}, leave: () => leaving.abort() };
}

/** Return the entities with the most links among the alphabetically first ones. */
async function examples(signal) {
  const found = await search("", LOOKED_AT, signal);
  return found.sort((one, other) => other.degree - one.degree).slice(0, EXAMPLES);
}
