// SPDX-License-Identifier: Apache-2.0
// The current view: the path below /ui and the query. Both are in the address, so that reload, back
// and links work.

import { Observable } from "./observable.js";

const BASE = "/ui";

/** The path below /ui as segments, and the query. */
export const route = new Observable(readLocation());

/**
 * The address of a view, for links.
 * @param {string} path
 * @param {Record<string, string>} [query]
 */
export function href(path, query) {
  const text = query ? String(new URLSearchParams(query)) : "";
  return `${BASE}/${path}${text ? `?${text}` : ""}`;
}

/**
 * Opens a view.
 * @param {string} path
 * @param {Record<string, string>} [query]
 */
export function navigate(path, query) {
  history.pushState(null, "", href(path, query));
  route.set(readLocation());
}

/**
 * Changes parameters of the query in place; an empty value removes its parameter.
 * @param {Record<string, string | null | undefined>} changes
 */
export function setQuery(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = String(query);
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
  route.set(readLocation());
}

function readLocation() {
  const path = location.pathname.slice(BASE.length).split("/").filter(Boolean).map(decodeSegment);
  return { path, query: new URLSearchParams(location.search) };
}

/**
 * Decodes a part of the address; returns it unchanged if a `%` in it is not an escape.
 * @param {string} part
 */
export function decodeSegment(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

addEventListener("popstate", () => route.set(readLocation()));

// Links to other views do not reload the application.
document.addEventListener("click", (event) => {
  const { button, metaKey, ctrlKey, shiftKey, altKey } = event;
  if (event.defaultPrevented || button || metaKey || ctrlKey || shiftKey || altKey) return;
  const link = event.target instanceof Element ? event.target.closest("a") : null;
  if (!link?.href || link.target || link.hasAttribute("download")) return;
  const url = new URL(link.href);
  const isView = url.pathname === BASE || url.pathname.startsWith(`${BASE}/`);
  if (url.origin !== location.origin || !isView) return;
  event.preventDefault();
  history.pushState(null, "", url.pathname + url.search);
  route.set(readLocation());
});
