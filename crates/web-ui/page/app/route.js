// SPDX-License-Identifier: Apache-2.0
// Where we are: the path below /ui and the query, kept in the address so that reload, back and links work.

import { Subject } from "./subject.js";

const BASE = "/ui";

/** `{path, query}`: the path below /ui as segments, and URLSearchParams. */
export const route = new Subject(read());

/** The address of a view, for links. */
export function href(path, query) {
  const text = query ? String(new URLSearchParams(query)) : "";
  return `${BASE}/${path}${text ? `?${text}` : ""}`;
}

/** Goes to a view. */
export function go(path, query) {
  history.pushState(null, "", href(path, query));
  route.set(read());
}

/** Changes parts of the query in place; an empty value takes its part out. */
export function setQuery(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = String(query);
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
  route.set(read());
}

function read() {
  const path = location.pathname.slice(BASE.length).split("/").filter(Boolean).map(decoded);
  return { path, query: new URLSearchParams(location.search) };
}

/** A part of the address as text; as it stands if somebody typed a `%` that means nothing. */
export function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

addEventListener("popstate", () => route.set(read()));

// Links within the page do not load it again.
document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target.closest?.("a[href]");
  if (!link || link.target || link.hasAttribute("download")) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || !(url.pathname === BASE || url.pathname.startsWith(`${BASE}/`))) return;
  event.preventDefault();
  history.pushState(null, "", url.pathname + url.search);
  route.set(read());
});
