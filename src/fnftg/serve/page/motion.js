// Animation of answers to their new positions.

/** Return the position of each answer by its key. */
export function placesOf(results) {
  const rows = [...results.querySelectorAll(".answer")];
  return new Map(rows.map((row) => [row.dataset.key, row.getBoundingClientRect().top]));
}

/** Animate the answers from their old positions. */
export function slide(results, places) {
  if (!places.size || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const row of results.querySelectorAll(".answer")) {
    const before = places.get(row.dataset.key);
    const moved = before === undefined ? null : before - row.getBoundingClientRect().top;
    const frames =
      moved === null
        ? [{ opacity: 0 }, { opacity: 1 }]
        : [{ transform: `translateY(${moved}px)` }, { transform: "none" }];
    if (moved !== 0) row.animate(frames, { duration: 220, easing: "ease-out" });
  }
}
