// SPDX-License-Identifier: Apache-2.0
// Sets the theme before anything is painted, so that a dark page does not flash white.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("ferrite.theme"); } catch { /* private windows may refuse */ }
  const light = matchMedia("(prefers-color-scheme: light)").matches;
  document.documentElement.dataset.theme = chosen ?? (light ? "light" : "dark");
})();
