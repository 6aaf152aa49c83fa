// SPDX-License-Identifier: Apache-2.0
// The frame: navigation, connection, theme, search, and the page that the address names.

import { html, useEffect, useErrorBoundary, useState } from "../vendor/preact-htm.js";
import { Icon, Mark } from "./icons.js";
import { connection } from "./live.js";
import { PAGES } from "./pages.js";
import { Palette } from "./palette.js";
import { href, route } from "./route.js";
import { session, signOut } from "./session.js";
import { SignIn } from "./sign_in.js";
import { useSubject } from "./subject.js";
import { switchTheme, theme } from "./theme.js";
import { Toasts } from "./toasts.js";

export function Shell() {
  const who = useSubject(session);
  const [searching, setSearching] = useState(false);
  useEffect(() => {
    const onKey = (event) => {
      const typing = event.target.closest?.("input,textarea,select");
      if ((event.key === "k" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey)) {
        if (document.querySelector("dialog[open]")) return;
        event.preventDefault();
        setSearching(true);
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  if (!who) return null;
  if (who.needed && !who.user) return html`<${SignIn} /><${Toasts} />`;
  return html`<button class="skip" onClick=${() => document.getElementById("main").focus()}>Skip to the page</button>
    <div class="shell">
      <${Navigation} who=${who} onSearch=${() => setSearching(true)} />
      <main id="main" tabindex="-1"><${ConnectionBar} /><${CurrentPage} /></main>
    </div>
    ${searching && html`<${Palette} onClose=${() => setSearching(false)} />`}
    <${Toasts} />`;
}

function Navigation({ who, onSearch }) {
  const { path: [first = "fleet"] } = useSubject(route);
  const light = useSubject(theme) === "light";
  return html`<nav aria-label="Pages">
    <a class="brand" href=${href("fleet")}><${Mark} /> <span>Ferrite</span></a>
    <button class="nav-item" onClick=${onSearch}><${Icon} name="search" /> Search <kbd>/</kbd></button>
    ${PAGES.filter((page) => page.icon).map((page) => html`<a key=${page.path} class="nav-item" href=${href(page.path)}
      aria-current=${first === page.path ? "page" : undefined}><${Icon} name=${page.icon} /> ${page.label}</a>`)}
    <div class="nav-end">
      <${Connection} />
      <button class="nav-item" onClick=${switchTheme}><${Icon} name=${light ? "moon" : "sun"} /> ${light ? "Dark" : "Light"}
        </button>
      ${who.user && html`<button class="nav-item" onClick=${signOut} title="Sign out ${who.user}">
        <${Icon} name="out" /> <span class="cut">Sign out ${who.user}</span></button>`}
    </div>
  </nav>`;
}

const CONNECTION = { idle: ["idle", ""], live: ["", "Live"], connecting: ["waiting", "Connecting…"],
  lost: ["lost", "Not connected"] };

function Connection() {
  const [kind, words] = CONNECTION[useSubject(connection)];
  return html`<div class="connection ${kind}" role="status" data-connection=${connection.value}><i></i><span>${words}</span></div>`;
}

/** Says aloud that what is shown may be old. */
function ConnectionBar() {
  const state = useSubject(connection);
  if (state !== "lost") return null;
  return html`<div class="lost-bar" role="alert">
    <${Icon} name="warning" />The connection to the server is lost. What you see may be old; trying again…</div>`;
}

const loaded = new Map();

function CurrentPage() {
  const { path } = useSubject(route);
  const [first = "fleet"] = path;
  const page = PAGES.find((one) => one.path === first);
  useEffect(() => { document.title = [path[1], page?.label ?? "Machine", "Ferrite"].filter(Boolean).join(" · "); }, [path.join("/")]);
  if (!page) return html`<div class="empty"><h2>There is nothing here</h2><a href=${href("fleet")}>To the fleet</a></div>`;
  // By the key, what broke in one place is left behind with it.
  return html`<${Page} key=${path.join("/")} page=${page} />`;
}

function Page({ page }) {
  const [, setReady] = useState(0);
  const [failure, setFailure] = useState(null);
  const [error, reset] = useErrorBoundary();
  useEffect(() => {
    if (loaded.has(page.path)) return;
    page.load().then((component) => { loaded.set(page.path, component); setReady((count) => count + 1); }, setFailure);
  }, []);
  useEffect(() => { if (error) console.error(error); }, [error]);
  // Browsers may remember that a module failed, and a newer server has other ones: only a reload surely helps.
  if (failure) return html`<${Broken} title="This page could not be loaded" error=${failure} again=${() => location.reload()} />`;
  if (error) return html`<${Broken} title="This page broke" error=${error} again=${reset} />`;
  const Component = loaded.get(page.path);
  return Component ? html`<${Component} />` : null;
}

function Broken({ title, error, again }) {
  return html`<div class="empty" role="alert"><h2>${title}</h2><p>${String(error.message ?? error)}</p>
    <button class="button" onClick=${again}>Try again</button></div>`;
}
