// Recently viewed entities of each graph, in the browser's local storage.

const MOST = 8;
const key = (graph) => `fnftg-recent-${graph.checkpoint.slice(0, 16)}`;

export function recent(graph) {
  try {
    const found = JSON.parse(localStorage.getItem(key(graph)) ?? "[]");
    return found.filter((one) => typeof one?.id === "string" && typeof one?.name === "string");
  } catch {
    return [];
  }
}

export function remember(graph, { id, name }) {
  const others = recent(graph).filter((one) => one.id !== id);
  try {
    localStorage.setItem(key(graph), JSON.stringify([{ id, name }, ...others].slice(0, MOST)));
  } catch {
    // storage is full or disabled
  }
}
