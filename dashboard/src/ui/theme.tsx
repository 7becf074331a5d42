/** Light, dark, or as the system has it. The choice belongs to the browser, not to a home, and nothing of a home is in
 * it: it is read before the server says which home this is, so that no page flashes. */
import { useState } from "react";

const THEMES = ["system", "light", "dark"] as const;
type Theme = (typeof THEMES)[number];
const KEY = "windlass:theme";
const SIGNS: Record<Theme, string> = { system: "◐", light: "☀", dark: "☾" };

function chosen(): Theme {
  try {
    return THEMES.find((theme) => theme === window.localStorage.getItem(KEY)) ?? "system";
  } catch {
    return "system"; // a browser that keeps nothing
  }
}

export function applyTheme(theme: Theme = chosen()): void {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function ThemeSwitch() {
  const [theme, setTheme] = useState(chosen);
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? "system";
  const change = () => {
    setTheme(next);
    applyTheme(next);
    try {
      window.localStorage.setItem(KEY, next);
    } catch {
      // It holds until the page is left.
    }
  };
  return (
    <button type="button" className="quiet" onClick={change} title={`Theme: ${theme}. Change to ${next}`}>
      <span aria-hidden="true">{SIGNS[theme]}</span>
      <span className="unseen">Theme: {theme}</span>
    </button>
  );
}
