// Light or dark: what the system prefers, unless the reader chose. Runs before the first paint, so nothing flashes.
(() => {
  const KEY = "fnftg-theme";
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try {
    chosen = localStorage.getItem(KEY);
  } catch {
    // storage is switched off: a choice lasts as long as the page
  }

  function show() {
    const theme = chosen ?? (prefersDark.matches ? "dark" : "light");
    document.documentElement.dataset.theme = theme;
    const other = theme === "dark" ? "light" : "dark";
    document.getElementById("theme")?.setAttribute("aria-label", `Switch to the ${other} theme`);
    return other;
  }

  function toggle() {
    chosen = show();
    try {
      localStorage.setItem(KEY, chosen);
    } catch {
      // as above
    }
    show();
  }

  show();
  prefersDark.addEventListener("change", show);
  document.addEventListener("DOMContentLoaded", () => {
    show();
    document.getElementById("theme").addEventListener("click", toggle);
  });
})();
