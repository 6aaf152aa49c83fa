// SPDX-License-Identifier: Apache-2.0
// Dark or light theme: the system's preference, until the user chooses. Canvases read colours here.

import { Observable } from "./observable.js";

const STORAGE_KEY = "ferrite.theme";
const systemTheme = matchMedia("(prefers-color-scheme: light)");

/** @type {Observable<string>} */
export const theme = new Observable(document.documentElement.dataset.theme ?? "dark");

/** @type {Map<string, string>} */
let colours = new Map();

/**
 * The value of a colour variable such as `--state-active` in the current theme.
 * @param {string} name
 */
export function colour(name) {
  let value = colours.get(name);
  if (value === undefined) {
    value = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    colours.set(name, value);
  }
  return value;
}

/** Switches to the other theme and stores the choice. */
export function switchTheme() {
  const other = theme.value === "dark" ? "light" : "dark";
  try {
    localStorage.setItem(STORAGE_KEY, other);
  } catch {
    /* Without storage the choice lasts until the next load. */
  }
  applyTheme(other);
}

systemTheme.addEventListener("change", () => {
  /** @type {string | null} */
  let stored = null;
  try {
    stored = localStorage.getItem(STORAGE_KEY);
  } catch {
    /* Without storage there is no choice. */
  }
  if (!stored) applyTheme(systemTheme.matches ? "light" : "dark");
});

/** @param {string} name */
function applyTheme(name) {
  document.documentElement.dataset.theme = name;
  colours = new Map();
  theme.set(name);
}
