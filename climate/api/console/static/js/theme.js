// Runs before the first paint, so it is a plain script. The choice is "system", "light" or "dark".
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  function apply() {
    let choice = "system";
    try {
      choice = localStorage.getItem("climate-theme") || choice;
    } catch {
      // Storage is blocked: follow the system.
    }
    const theme = choice === "system" ? (dark.matches ? "dark" : "light") : choice;
    document.documentElement.dataset.theme = theme;
    document.dispatchEvent(new CustomEvent("themechange", { detail: theme }));
  }
  dark.addEventListener("change", apply);
  addEventListener("storage", apply);
  document.addEventListener("themechoice", apply);
  apply();
})();
