// SPDX-License-Identifier: Apache-2.0
// Dark or light: what the system says, until somebody chooses. Pictures on canvases ask for colours here.

import { Subject } from "./subject.js";

const KEY = "ferrite.theme";
const system = matchMedia("(prefers-color-scheme: light)");

/** Told when the theme changes. */
export const theme = new Subject(document.documentElement.dataset.theme);

let colours = new Map();

/** The value of a colour variable such as `--state-active`, as the theme has it now. */
export function colour(name) {
  let value = colours.get(name);
  if (value === undefined) {
    value = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    colours.set(name, value);
  }
  return value;
}

/** Chooses the other theme, and remembers it. */
export function switchTheme() {
  const other = theme.value === "dark" ? "light" : "dark";
  try { localStorage.setItem(KEY, other); } catch { /* then it holds until the next load */ }
  show(other);
}

system.addEventListener("change", () => {
  let chosen = null;
  try { chosen = localStorage.getItem(KEY); } catch { /* as if none were chosen */ }
  if (!chosen) show(system.matches ? "light" : "dark");
});

function show(name) {
  document.documentElement.dataset.theme = name;
  colours = new Map();
  theme.set(name);
}
