// Runs before the page is drawn (a plain script, not a module), so that a chosen theme never flashes.
(() => {
  const root = document.documentElement;
  let chosen = "auto";
  try {
    chosen = localStorage.getItem("artimon.theme") ?? "auto";
  } catch {
    // without storage the page follows the system's theme
  }
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
})();
