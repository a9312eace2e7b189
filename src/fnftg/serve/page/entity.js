// The view of an entity: its text, its links and the predicted links.

import { aborted, entity as fetchEntity, search } from "./api.js";
import { answersPanel } from "./answers.js";
import { h } from "./dom.js";
import { egoGraph } from "./graph.js";
import { remember } from "./recent.js";
import { usualRelation } from "./relations.js";
import { entityLink } from "./route.js";
import { empty, failure, skeleton } from "./states.js";
import { counted, number, spoken } from "./words.js";

const EDGES = 200; // edges to fetch; fewer are drawn

/** Create the view {element, update(route), leave()} for "#/entity/ID". `page` is {graph, go, title, reasons}. */
export function entityView(page, first) {
  const leaving = new AbortController();
  const card = h("section", { class: "card about", "aria-busy": "true" }, skeleton(3), skeleton(6, "picture"));
  let route = first;
  let name = first.id;

  const panel = answersPanel({
    graph: page.graph,
    heading: "Predict missing links",
    onchange: (part, replace) => page.go({ ...route, why: "", whyrelation: "", ...part }, replace),
    onwhy: (answer) =>
      page.go({ ...route, why: answer.id, whyrelation: typeof answer.relation === "string" ? answer.relation : "" }),
  });

  function update(next) {
    route = next;
    const { relation, direction } = chosen(page.graph, route);
    panel.show({
      subject: route.id,
      name,
      relation,
      words: route.words ?? "",
      direction,
      known: route.known === "1",
      list: route.list,
    });
    page.reasons(route.why ? whyBody(route, route.id, relation, direction) : null);
  }

  async function load() {
    try {
      const found = await fetchEntity(first.id, EDGES, leaving.signal);
      name = found.name;
      page.title(name);
      remember(page.graph, found);
      card.replaceChildren(...painted(found));
      update(route);
    } catch (error) {
      if (aborted(error)) return;
      if (error.status === 404) return lost();
      card.replaceChildren(failure(error, load));
    } finally {
      card.removeAttribute("aria-busy");
    }
  }

  /** Show entities with similar names if the entity does not exist. */
  async function lost() {
    const near = h("p", { class: "chips" });
    const state = empty("Entity not found", "The graph has no entity ", h("code", {}, first.id), ".");
    page.title("Not found");
    element.className = "";
    element.replaceChildren(h("section", { class: "card" }, state, near));
    const found = await search(first.id.slice(0, 200), 6, leaving.signal).catch(() => []);
    if (found.length) near.append(h("span", { class: "soft" }, "Did you mean"));
    near.append(...found.map(({ id, name: called }) => h("a", { class: "chip", href: entityLink(id) }, called)));
  }

  const element = h("div", { class: "two" }, card, panel.element);
  page.title(name);
  load();
  return { element, update, leave: () => leaving.abort() };
}

/** Return the relation and direction of a route; "*" means all relations. */
export function chosen(graph, route) {
  const relation = route.relation === "*" ? "" : route.relation || usualRelation(graph);
  return { relation: route.words ? "" : relation, direction: route.direction === "heads" ? "heads" : "tails" };
}

/** Return the request body that explains the answer `route.why`. */
export function whyBody(route, subject, relation, direction) {
  const asked = route.words ? { text: route.words } : route.whyrelation || relation;
  return direction === "heads"
    ? { head: route.why, relation: asked, tail: subject, asked: "head" }
    : { head: subject, relation: asked, tail: route.why, asked: "tail" };
}

function painted(found) {
  const rows = found.edges.map(({ relation, direction, neighbour }) => ({
    name: neighbour.name,
    title:
      direction === "out"
        ? `${spoken(relation.name)} → ${neighbour.name}\n${neighbour.text}`
        : `${neighbour.name} → ${spoken(relation.name)}\n${neighbour.text}`,
    label: spoken(relation.name),
    away: direction === "out",
    group: relation.id,
    href: entityLink(neighbour.id),
  }));
  const { element, drawn } = egoGraph({ name: found.name, title: found.text }, rows);
  const left = found.degree - drawn;
  return [
    h("h1", { tabindex: "-1" }, found.name),
    h("p", { class: "identity" }, h("code", {}, found.id), h("span", {}, counted(found.degree, "link"))),
    text(found.text),
    rows.length ? element : h("p", { class: "remark" }, "No links. The model uses only the text."),
    left > 0 && rows.length > 0 && h("p", { class: "remark more-links" }, `and ${number(left)} more`),
  ].filter(Boolean);
}

/** Show a text, folded if it is very long. */
function text(words) {
  const place = h("p", { class: "description" }, words);
  if (words.length < 480) return place;
  place.classList.add("folded");
  const button = h(
    "button",
    { type: "button", class: "plain", onclick: () => button.replaceWith() || place.classList.remove("folded") },
    "Show all",
  );
  return h("div", {}, place, button);
}
