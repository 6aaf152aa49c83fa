// SPDX-License-Identifier: Apache-2.0
// Sets the theme before the first paint, so that a dark page does not flash white.
(() => {
  /** @type {string | null} */
  let stored = null;
  try {
    stored = localStorage.getItem("ferrite.theme");
  } catch {
    /* Private windows may deny storage. */
  }
  const light = matchMedia("(prefers-color-scheme: light)").matches;
  document.documentElement.dataset.theme = stored ?? (light ? "light" : "dark");
})();
