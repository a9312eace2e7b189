// The light or dark theme: the system's preference, unless the user chose one. Runs before the first paint.
(() => {
  const KEY = "fnftg-theme";
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try {
    chosen = localStorage.getItem(KEY);
  } catch {
    // storage is disabled: the choice is lost when the page is closed
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
