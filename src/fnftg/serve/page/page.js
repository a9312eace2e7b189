// The page: loads the model's data and shows the view of the current address.

import * as api from "./api.js";
import { combobox } from "./combobox.js";
import { describeView } from "./new_entity.js";
import { h } from "./dom.js";
import { entityView } from "./entity.js";
import { homeView } from "./home.js";
import { reasonsDialog } from "./reasons.js";
import { entityLink, format, parse } from "./route.js";
import { empty, failure, skeleton, toast } from "./states.js";
import { counted, number, percent, rest } from "./words.js";

const place = document.getElementById("view");
let page = null;
let current = null; // {key, view}

// The frame

const finder = combobox({
  label: "Search for an entity",
  placeholder: "Search for an entity…",
  big: true,
  least: 1,
  wait: 150,
  source: async (text, signal) => {
    const found = await api.search(text, 10, signal);
    return found.map(({ id, name, text: words, degree }) => ({
      label: name,
      note: counted(degree, "link"),
      detail: rest(words, name),
      value: id,
    }));
  },
  onpick: ({ value }) => (location.hash = entityLink(value)),
});
document.getElementById("search").append(finder.element);

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input:not([type=checkbox], [type=radio]), textarea, dialog");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  finder.input.focus();
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash is used for routes
  place.focus();
});

let counting = 0;
api.patience.addEventListener("change", ({ detail: { waiting, why } }) => {
  clearInterval(counting);
  if (!waiting) return toast(null);
  const until = performance.now() + waiting * 1000;
  const tick = () =>
    toast(`${why}. Trying again in ${Math.max(Math.ceil((until - performance.now()) / 1000), 1)} s…`, 0);
  tick();
  counting = setInterval(tick, 500);
});

function frame(model) {
  const { graph, metrics } = model;
  const size = [
    counted(graph.entities, "entity"),
    counted(graph.relations, "relation"),
    counted(graph.triples, "triple"),
  ];
  const best = metrics && ["mrr", "hits@10"].filter((name) => typeof metrics[name] === "number");
  const title = metrics && `${metrics.split ?? ""} ${metrics.protocol ? `(protocol ${metrics.protocol})` : ""}`;
  document
    .getElementById("model")
    .replaceChildren(
      h("b", { title: [model.system, model.encoder].filter(Boolean).join(", ") }, model.name),
      h("span", { class: "size" }, size.join(" · ")),
      ...(best ?? []).map((name) =>
        h(
          "span",
          { class: "metric", title },
          name === "mrr" ? "MRR " : "Hits@10 ",
          h("b", {}, name === "mrr" ? metrics.mrr.toFixed(3) : percent(metrics[name])),
        ),
      ),
    );
  document.getElementById("version").textContent = `fnftg ${model.version}`;
  const { system, parameters, checkpoint } = model;
  const parts = [
    system,
    parameters && `${number(parameters)} parameters`,
    checkpoint && `weights ${checkpoint.slice(0, 8)}`,
  ];
  document.getElementById("checkpoint").textContent = parts.filter(Boolean).join(" · ");
}

// Views

const VIEWS = { home: homeView, entity: entityView, new: describeView };

function render() {
  if (!page) return;
  const route = parse(location.hash);
  const key = `${route.view} ${route.id ?? ""}`;
  document.body.dataset.view = route.view;
  document.getElementById("to-new").toggleAttribute("aria-current", route.view === "new");
  if (current?.key !== key) {
    const isFirst = current === null;
    current?.view.leave();
    page.reasons(null);
    const view = (VIEWS[route.view] ?? lostView)(page, route);
    current = { key, view };
    place.replaceChildren(view.element);
    if (!isFirst) {
      scrollTo(0, 0);
      if (view.focus) view.focus();
      else place.focus({ preventScroll: true });
    }
  }
  current.view.update(route);
}

function lostView() {
  page.title("Not found");
  const way = h("p", { class: "centred" }, h("a", { href: "#/" }, "Home"));
  return {
    element: h("section", { class: "card" }, empty("This page does not exist"), way),
    update() {},
    leave() {},
  };
}

/** Show another route; add it to the history unless it replaces the current one. */
function go(route, replace = false) {
  const hash = format(route);
  if (hash === (location.hash || "#/")) return render();
  if (replace) history.replaceState(history.state, "", hash);
  else history.pushState({ within: true }, "", hash);
  render();
}

/** Go back in the history if opening the explanation added an entry. */
function reasonsClosed() {
  const route = parse(location.hash);
  if (!route.why) return;
  if (history.state?.within) history.back();
  else go({ ...route, why: "", whyrelation: "" }, true);
}

async function start() {
  place.replaceChildren(h("section", { class: "card" }, skeleton(3), skeleton(6, "picture")));
  document.body.dataset.view = parse(location.hash).view;
  try {
    const [model, relations] = await Promise.all([api.model(), api.relations()]);
    const called = new Map(relations.map(({ id, name }) => [id, name]));
    const graph = {
      relations,
      relationName: (id) => (typeof id === "string" ? (called.get(id) ?? id) : `“${id.text}”`),
      calibrated: model.calibrated,
      checkpoint: model.checkpoint ?? "",
    };
    frame(model);
    const dialog = reasonsDialog(graph, reasonsClosed);
    page = {
      graph,
      go,
      title: (words) => (document.title = words ? `${words} · fnftg` : `fnftg · ${model.name}`),
      reasons: (body) => (body ? dialog.open(body) : dialog.close()),
    };
    render();
  } catch (error) {
    document.title = "fnftg";
    place.replaceChildren(h("section", { class: "card" }, failure(error, start)));
  }
}

addEventListener("hashchange", render);
addEventListener("popstate", render);
start();
