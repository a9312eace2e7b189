// The current query as JSON, curl or Python code to copy.

import { bodies } from "./queries.js";
import { h } from "./dom.js";
import { toast } from "./states.js";

const FORMS = { JSON: asJson, curl: asCurl, Python: asPython };

/** Create a collapsed panel {element, show(question)}. */
export function elsewhere() {
  const code = h("code", {});
  const tabs = Object.keys(FORMS).map((name) =>
    h(
      "button",
      {
        type: "button",
        role: "tab",
        "aria-selected": "false",
        tabindex: "-1",
        onclick: () => choose(name),
        onkeydown: walk,
      },
      name,
    ),
  );
  let chosen = "JSON";
  let question = null;

  function walk(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length];
    next.focus();
    next.click();
  }

  function choose(name) {
    chosen = name;
    for (const tab of tabs) {
      tab.setAttribute("aria-selected", String(tab.textContent === name));
      tab.tabIndex = tab.textContent === name ? 0 : -1;
    }
    if (question) code.textContent = FORMS[name](question);
  }

  const element = h(
    "details",
    { class: "elsewhere" },
    h("summary", {}, "Copy as JSON, curl or Python"),
    h(
      "div",
      { class: "code-head" },
      h("div", { role: "tablist", "aria-label": "Format of the query" }, tabs),
      h("button", { type: "button", class: "quiet", onclick: () => copy(code) }, "Copy"),
    ),
    h("pre", { tabindex: "0", role: "tabpanel", "aria-label": "The query" }, code),
  );
  choose(chosen);
  return {
    element,
    show(next) {
      question = next;
      choose(chosen);
    },
  };
}

async function copy(code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    toast("Copied");
  } catch {
    getSelection().selectAllChildren(code); // without HTTPS the clipboard is not available
    toast("Selected: press Ctrl + C to copy");
  }
}

/** Format the request body, or a list of bodies if one cannot hold all queries. */
export function asJson({ subject, relations, direction, k, known }) {
  const all = bodies(subject, relations, direction, k, known);
  return JSON.stringify(all.length === 1 ? all[0] : all, null, 2);
}

export function asCurl({ subject, relations, direction, k, known }) {
  const commands = bodies(subject, relations, direction, k, known).map((body) => {
    const quoted = JSON.stringify(body).replaceAll("'", "'\\''");
    return `curl ${location.origin}/v1/predict -H 'Content-Type: application/json' \\\n  -d '${quoted}'`;
  });
  return commands.join("\n");
}

export function asPython({ subject, relations, all, direction, k, known }) {
  const lines = ["import fnftg", "", 'predictor = fnftg.load("RUN")  # the folder of the run'];
  let name = JSON.stringify(subject);
  if (typeof subject !== "string") {
    const edges = (key) => (subject[key]?.length ? `, ${key}=[${subject[key].map(pair).join(", ")}]` : "");
    lines.push(`new = fnftg.NewEntity(${JSON.stringify(subject.text)}${edges("edges")}${edges("incoming")})`);
    name = "new";
  }
  const options = `, k=${k}${known ? ", known=True" : ""}`;
  const call = (relation) =>
    direction === "heads"
      ? `predictor.heads(${relation}, ${name}${options})`
      : `predictor.tails(${name}, ${relation}${options})`;
  const print = "print(answer.rank, answer.name, answer.score, answer.probability)";
  if (!all) return [...lines, `for answer in ${call(pythonRelation(relations[0]))}:`, `    ${print}`].join("\n");
  const loop = ["for relation in predictor.relation_ids:", `    for answer in ${call("relation")}:`];
  return [...lines, ...loop, `        ${print.replace("(", "(relation, ")}`].join("\n");
}

const pair = ([relation, entity]) => `(${pythonRelation(relation)}, ${JSON.stringify(entity)})`;
const pythonRelation = (relation) =>
  typeof relation === "string" ? JSON.stringify(relation) : `fnftg.Relation(${JSON.stringify(relation.text)})`;
