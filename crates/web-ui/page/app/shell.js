// SPDX-License-Identifier: Apache-2.0
// The application frame: navigation, connection state, theme, search, and the current page.

import { html, useEffect, useErrorBoundary, useState } from "../vendor/preact-htm.js";
import { caller, matchesAnyRule, rolesText, scopeLabel } from "./caller.js";
import { connection } from "./event_stream.js";
import { Icon, Logo } from "./icons.js";
import { useObservable } from "./observable.js";
import { PAGES } from "./pages.js";
import { Palette } from "./palette.js";
import { href, route } from "./route.js";
import { isSignedOut, session, signOut } from "./session.js";
import { SignIn } from "./sign_in.js";
import { switchTheme, theme } from "./theme.js";
import { Toasts } from "./toasts.js";

export function Shell() {
  const current = useObservable(session);
  const known = useObservable(caller);
  const [searching, setSearching] = useState(false);
  useEffect(() => {
    const onKey = (event) => {
      const isTyping = event.target.closest?.("input,textarea,select");
      const withModifier = event.ctrlKey || event.metaKey;
      const isShortcut =
        (event.key === "k" && withModifier) || (event.key === "/" && !isTyping && !withModifier);
      if (!isShortcut || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      setSearching(true);
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  if (!current) return null;
  if (isSignedOut(current)) return html`<${SignIn} /><${Toasts} />`;
  // Nothing is shown before it is known what the caller may see.
  if (known === undefined) return null;
  return html`<button class="skip" onClick=${() => document.getElementById("main")?.focus()}>Skip to content</button>
    <div class="shell">
      <${Navigation} user=${current.user} onSearch=${() => setSearching(true)} />
      <main id="main" tabindex="-1"><${ConnectionBar} /><${CurrentPage} /></main>
    </div>
    ${searching && html`<${Palette} onClose=${() => setSearching(false)} />`}
    <${Toasts} />`;
}

/** @param {{ user: string | null, onSearch: Function }} props */
function Navigation({ user, onSearch }) {
  const {
    path: [first = "fleet"],
  } = useObservable(route);
  const isLight = useObservable(theme) === "light";
  const known = useObservable(caller);
  return html`<nav aria-label="Pages">
    <a class="brand" href=${href("fleet")}><${Logo} /> <span>Ferrite</span></a>
    <button class="nav-item" onClick=${onSearch}><${Icon} name="search" /> Search <kbd>/</kbd></button>
    ${PAGES.filter((page) => page.icon && matchesAnyRule(known, page.rules)).map(
      (page) => html`<a key=${page.path} class="nav-item" href=${href(page.path)}
      aria-current=${first === page.path ? "page" : undefined}><${Icon} name=${page.icon} /> <span class="cut">${page.label}</span></a>`,
    )}
    <div class="nav-end">
      <${Connection} />
      <button class="nav-item" onClick=${switchTheme}><${Icon} name=${isLight ? "moon" : "sun"} /> ${isLight ? "Dark" : "Light"}</button>
      ${
        user &&
        html`<a class="nav-item account" href=${href("access", { tab: "account" })} title=${rolesText(known)}>
        <${Icon} name="user" /> <span class="cut" data-account>${user}<small>${scopeLabel(known)}</small></span></a>
        <button class="nav-item" onClick=${signOut} title="Sign out ${user}"><${Icon} name="out" /> <span class="cut">Sign out</span></button>`
      }
    </div>
  </nav>`;
}

/** The class and the label of each connection state. */
const CONNECTION_STATES = {
  idle: ["idle", ""],
  live: ["", "Live"],
  connecting: ["waiting", "Connecting…"],
  lost: ["lost", "Not connected"],
};

function Connection() {
  const state = useObservable(connection);
  const [kind, label] = CONNECTION_STATES[state];
  return html`<div class="connection ${kind}" role="status" data-connection=${state}><i></i><span>${label}</span></div>`;
}

/** Warns that the displayed data may be outdated. */
function ConnectionBar() {
  const state = useObservable(connection);
  if (state !== "lost") return null;
  return html`<div class="lost-bar" role="alert">
    <${Icon} name="warning" />Connection to the server lost; reconnecting. The data on this page may be outdated.</div>`;
}

/** @type {Map<string, Function>} */
const loadedPages = new Map();

function CurrentPage() {
  const { path } = useObservable(route);
  const [first = "fleet"] = path;
  const page = PAGES.find((candidate) => candidate.path === first);
  const known = useObservable(caller);
  useEffect(() => {
    document.title = [path[1], page?.label ?? "Machine", "Ferrite"].filter(Boolean).join(" · ");
  }, [path.join("/")]);
  if (!page)
    return html`<div class="empty"><h2>Page not found</h2><a href=${href("fleet")}>Open the fleet</a></div>`;
  if (!matchesAnyRule(known, page.rules))
    return html`<div class="empty" role="alert"><h2>Your roles do not allow this page</h2>
      <p>${page.label} needs the policy rule ${page.rules?.map((rule, index) => html`${index > 0 && " or "}<code key=${rule}>${rule}</code>`)}.
        You have ${rolesText(known)}.</p></div>`;
  // The key discards the error state of another page.
  return html`<${LazyPage} key=${path.join("/")} page=${page} />`;
}

/** @param {{ page: any }} props */
function LazyPage({ page }) {
  const [, setReady] = useState(0);
  const [failure, setFailure] = useState(/** @type {Error | null} */ (null));
  const [error, reset] = useErrorBoundary();
  useEffect(() => {
    if (loadedPages.has(page.path)) return;
    page.load().then((component) => {
      loadedPages.set(page.path, component);
      setReady((count) => count + 1);
    }, setFailure);
  }, []);
  useEffect(() => {
    if (error) console.error(error);
  }, [error]);
  // Browsers cache a failed module import, and an upgraded server has other modules: reload.
  if (failure)
    return html`<${PageError} title="This page could not be loaded" error=${failure} onRetry=${() => location.reload()} />`;
  if (error)
    return html`<${PageError} title="An error occurred on this page" error=${error} onRetry=${reset} />`;
  const Component = loadedPages.get(page.path);
  return Component ? html`<${Component} />` : null;
}

/** @param {{ title: string, error: Error & { status?: number }, onRetry: Function }} props */
function PageError({ title, error, onRetry }) {
  return html`<div class="empty" role="alert"><h2>${title}</h2><p>${String(error.message ?? error)}</p>
    <button class="button" onClick=${onRetry}>Try again</button></div>`;
}
