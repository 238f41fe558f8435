const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };
const KEPT = "agentbench theme";

/** The button that chooses between the system's colours, light and dark ones; a browser keeps the choice if it may. */
export function startTheme() {
  const button = document.getElementById("theme");
  // The rules of dark colours stand once in the style: a choice changes when they apply. Paper is light.
  const rules = [...document.styleSheets].flatMap(({ cssRules }) => [...cssRules]).filter((rule) => rule.media?.mediaText.includes("prefers-color-scheme: dark"));
  const conditions = { auto: "(prefers-color-scheme: dark)", light: "not all", dark: "screen" };
  let theme = keptTheme();
  button.addEventListener("click", () => {
    const names = Object.keys(THEMES);
    theme = names[(names.indexOf(theme) + 1) % names.length];
    apply();
    try {
      localStorage.setItem(KEPT, theme);
    } catch {
      return; // refused: the choice lasts until the page is closed
    }
  });
  apply();

  function apply() {
    for (const rule of rules) rule.media.mediaText = conditions[theme];
    document.documentElement.dataset.theme = theme;
    button.textContent = THEMES[theme];
    button.setAttribute("aria-label", `Colours: ${THEMES[theme]}`);
  }
}

function keptTheme() {
  try {
    const kept = localStorage.getItem(KEPT);
    return Object.hasOwn(THEMES, kept) ? kept : "auto";
  } catch {
    return "auto";
  }
}
