// The view of a new entity: a description, a few links, and predictions that update with every change.

import { aborted, entity as fetchEntity, search } from "./api.js";
import { answersPanel } from "./answers.js";
import { combobox } from "./combobox.js";
import { debounced, h } from "./dom.js";
import { chosen, whyBody } from "./entity.js";
import { egoGraph } from "./graph.js";
import { relationOptions } from "./relations.js";
import { entityLink } from "./route.js";
import { empty } from "./states.js";
import { cut, rest, spoken } from "./words.js";

const WAIT = 300; // milliseconds after the last key press before a query is sent
const MOST_EDGES = 64;
const names = new Map(); // names of the chosen entities, by id

/** Create the view {element, update(route), leave()} for "#/new". */
export function describeView(page, first) {
  const leaving = new AbortController();
  let route = first;
  let edges = []; // {direction, relation, entity, element, fields}
  const text = h("textarea", {
    id: "new-text",
    rows: "4",
    maxlength: "20000",
    placeholder: "Name and definition, such as “labradoodle, a cross between a Labrador retriever and a poodle”",
    oninput: () => later(),
  });
  const problem = h("p", { class: "problem", id: "new-text-problem", hidden: true });
  const rows = h("div", { class: "edges" });
  const preview = h("div", { class: "preview" });
  const add = h(
    "button",
    { type: "button", class: "quiet", onclick: () => addEdge(["out", "", ""]).fields.relation.input.focus() },
    "+ Add a link",
  );

  const panel = answersPanel({
    graph: page.graph,
    heading: "Predict links",
    onchange: (part, replace) => page.go({ ...written(), why: "", whyrelation: "", ...part }, replace),
    onwhy: (answer) =>
      page.go({
        ...written(),
        why: answer.id,
        whyrelation: typeof answer.relation === "string" ? answer.relation : "",
      }),
    onproblem: marked,
  });
  const later = debounced(() => page.go({ ...written(), why: "", whyrelation: "" }, true), WAIT);

  /** Return the route of the form's content. */
  const written = () => ({
    ...route,
    text: text.value.trim(),
    edges: edges
      .filter(({ relation, entity }) => relation || entity)
      .map((edge) => [edge.direction, edge.relation, edge.entity]),
  });

  const complete = () => edges.filter(({ relation, entity }) => relation && entity);

  /** Return the entity as JSON for the server, or null if the description is empty. */
  function subject() {
    if (!text.value.trim()) return null;
    const of = (direction) =>
      complete()
        .filter((edge) => edge.direction === direction)
        .map(({ relation, entity }) => [relation, entity]);
    const [out, incoming] = [of("out"), of("in")];
    return { text: text.value.trim(), ...(out.length && { edges: out }), ...(incoming.length && { incoming }) };
  }

  const name = () =>
    cut(
      text.value
        .trim()
        .split(/[,;.:(]/)[0]
        .trim() || "new entity",
      40,
    );

  function update(next) {
    route = next;
    if ((route.text ?? "") !== text.value.trim()) text.value = route.text ?? "";
    const inForm = written().edges;
    if (JSON.stringify(inForm) !== JSON.stringify(route.edges)) {
      for (const edge of edges) edge.element.remove();
      edges = [];
      route.edges.forEach(addEdge);
    }
    const { relation, direction } = chosen(page.graph, route);
    const about = subject();
    const hint = empty("No description yet", "Write a few words to see predictions.");
    panel.show(
      {
        subject: about,
        name: name(),
        relation,
        words: route.words ?? "",
        direction,
        known: route.known === "1",
        list: route.list,
      },
      hint,
    );
    draw();
    page.title(about ? `${name()} (new)` : "A new entity");
    page.reasons(route.why && about ? whyBody(route, about, relation, direction) : null);
  }

  function draw() {
    const drawable = complete().map((edge) => ({
      name: names.get(edge.entity) ?? edge.entity,
      title: `${spoken(page.graph.relationName(edge.relation))}: ${names.get(edge.entity) ?? edge.entity}`,
      label: spoken(page.graph.relationName(edge.relation)),
      away: edge.direction === "out",
      group: edge.relation,
      href: entityLink(edge.entity),
    }));
    const key = JSON.stringify([name(), drawable]);
    if (preview.dataset.key === key) return;
    preview.dataset.key = key;
    preview.replaceChildren(...(drawable.length ? [egoGraph({ name: name() }, drawable).element] : []));
  }

  // Links

  function addEdge([direction, relation, entity]) {
    const edge = { direction, relation, entity };
    const fields = {
      relation: combobox({
        label: "Relation of this link",
        placeholder: "relation",
        keep: true,
        source: async (typed) => relationOptions(page.graph, typed, false, false),
        onpick: ({ value }) => changed(edge, { relation: value }),
        onempty: () => changed(edge, { relation: "" }),
      }),
      entity: combobox({
        label: "Entity at the other end",
        placeholder: "entity",
        keep: true,
        least: 1,
        wait: 150,
        source: entityOptions,
        onpick: ({ value, label }) => {
          names.set(value, label);
          changed(edge, { entity: value });
        },
        onempty: () => changed(edge, { entity: "" }),
      }),
    };
    const turn = h("button", {
      type: "button",
      class: "turn quiet",
      onclick: () => changed(edge, { direction: edge.direction === "out" ? "in" : "out" }),
    });
    const remove = h(
      "button",
      { type: "button", class: "quiet round", "aria-label": "Remove this link", onclick: () => removeEdge(edge) },
      "×",
    );
    Object.assign(edge, { fields, turn });
    edge.element = h(
      "div",
      { class: "edge-row", role: "group", "aria-label": "A link" },
      turn,
      fields.relation.element,
      fields.entity.element,
      remove,
    );
    edges.push(edge);
    rows.append(edge.element);
    show(edge);
    if (entity) nameOf(entity, edge);
    add.disabled = edges.length >= MOST_EDGES;
    return edge;
  }

  function show(edge) {
    edge.fields.relation.set(edge.relation && spoken(page.graph.relationName(edge.relation)));
    edge.fields.entity.set(names.get(edge.entity) ?? edge.entity);
    const out = edge.direction === "out";
    edge.turn.replaceChildren(h("span", { class: "turn-new" }, "new"), out ? " →" : " ←");
    edge.turn.setAttribute(
      "aria-label",
      out ? "The edge starts at the new entity; reverse it" : "The edge ends at the new entity; reverse it",
    );
    edge.turn.title = out ? "From the new entity" : "To the new entity";
  }

  function changed(edge, part) {
    Object.assign(edge, part);
    show(edge);
    later.now();
  }

  function removeEdge(edge) {
    const place = edges.indexOf(edge);
    edges.splice(place, 1);
    edge.element.remove();
    add.disabled = false;
    (edges[Math.min(place, edges.length - 1)]?.turn ?? add).focus();
    later.now();
  }

  /** Fetch the name of an entity, since the address contains only ids. Errors of a prediction take precedence. */
  async function nameOf(id, edge) {
    try {
      if (!names.has(id)) names.set(id, (await fetchEntity(id, 0, leaving.signal)).name);
      show(edge);
      draw();
    } catch (error) {
      const field = edge.fields.entity;
      if (!aborted(error) && error.status === 404 && !field.complains()) field.complain(error.message);
    }
  }

  async function entityOptions(typed, signal) {
    const found = await search(typed, 8, signal);
    return found.map(({ id, name: called, text: words }) => ({
      label: called,
      detail: rest(words, called),
      value: id,
    }));
  }

  /** Show a 422 error beside the field that it names; return whether there is one. */
  function marked(error) {
    complain(null);
    for (const { fields } of edges) Object.values(fields).forEach((field) => field.complain(null));
    const path = error?.status === 422 ? (error.field ?? "") : "";
    const [, kind, place, part] = path.match(/\b(edges|incoming)\.(\d+)(?:\.(\d+))?/) ?? [];
    if (kind) {
      const edge = complete().filter(({ direction }) => direction === (kind === "edges" ? "out" : "in"))[Number(place)];
      edge?.fields[part === "0" ? "relation" : "entity"].complain(error.message);
      return Boolean(edge);
    }
    if (/\b(head|tail)\b/.test(path)) complain(error.message);
    return /\b(head|tail|relation)\b/.test(path);
  }

  function complain(message) {
    problem.textContent = message ?? "";
    problem.hidden = !message;
    text.setAttribute("aria-invalid", String(Boolean(message)));
    if (message) text.setAttribute("aria-describedby", problem.id);
  }

  const element = h(
    "div",
    { class: "two" },
    h(
      "section",
      { class: "card about" },
      h("h1", { tabindex: "-1" }, "Describe a new entity"),
      h("p", { class: "soft" }, "Nothing is stored. The predictions are the same as if the entity were in the graph."),
      h("div", { class: "field" }, h("label", { for: text.id, class: "field-name" }, "Description"), text, problem),
      h("div", { class: "field" }, h("span", { class: "field-name" }, "Links"), rows, add),
      preview,
    ),
    panel.element,
  );
  return { element, update, leave: () => (later.cancel(), leaving.abort()), focus: () => text.focus() };
}
