// Runs before the first paint, so it is a plain script. The choice is "system", "light" or "dark".
(() => {
  const KEY = "climate-theme";
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let choice = "system";

  function stored() {
    try {
      return localStorage.getItem(KEY) || "system";
    } catch {
      return choice; // Storage is blocked: the choice holds until the page is left.
    }
  }

  function store() {
    try {
      localStorage.setItem(KEY, choice);
    } catch {
      // Storage is blocked.
    }
  }

  function apply() {
    const theme = choice === "system" ? (dark.matches ? "dark" : "light") : choice;
    document.documentElement.dataset.theme = theme;
    document.documentElement.dataset.themeChoice = choice;
    document.dispatchEvent(new CustomEvent("themechange", { detail: theme }));
  }

  dark.addEventListener("change", apply);
  addEventListener("storage", () => {
    choice = stored();
    apply();
  });
  document.addEventListener("themechoice", ({ detail }) => {
    choice = detail;
    store();
    apply();
  });
  choice = stored();
  apply();
})();
