// Routes in the hash of the address: "#/entity/ID?relation=…" or "#/new?text=…". Ids may contain any character.

const NAMES = ["relation", "words", "direction", "known", "why", "whyrelation", "list", "text"];

/** Parse a hash into {view: "home" | "entity" | "new" | "lost", id, edges} and the parameters in NAMES. */
export function parse(hash) {
  const [path, search = ""] = split(hash.replace(/^#/, ""), "?");
  const route = { view: "lost", edges: [] };
  if (path === "" || path === "/") route.view = "home";
  else if (path === "/new") route.view = "new";
  else if (path.startsWith("/entity/") && path.length > 8) {
    route.view = "entity";
    route.id = decoded(path.slice(8));
  }
  for (const part of search.split("&").filter(Boolean)) {
    const [name, value = ""] = split(part, "=").map(decoded);
    if (name === "edge") route.edges.push(...edge(value));
    else if (NAMES.includes(name)) route[name] = value;
  }
  return route;
}

export function format(route) {
  const path =
    route.view === "entity" ? `/entity/${encodeURIComponent(route.id)}` : route.view === "new" ? "/new" : "/";
  const pairs = NAMES.filter((name) => route[name]).map((name) => [name, route[name]]);
  for (const one of route.edges ?? []) pairs.push(["edge", JSON.stringify(one)]);
  const search = pairs.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
  return `#${path}${search && `?${search}`}`;
}

export const entityLink = (id) => format({ view: "entity", id });

/** Parse an edge ["out" | "in", relation, entity]; ignore anything else. */
function edge(value) {
  try {
    const found = JSON.parse(value);
    const good = Array.isArray(found) && found.length === 3 && found.every((part) => typeof part === "string");
    return good && ["out", "in"].includes(found[0]) ? [found] : [];
  } catch {
    return [];
  }
}

function split(text, sign) {
  const at = text.indexOf(sign);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // an invalid escape, such as a single %
  }
}
