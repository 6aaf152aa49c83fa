// SPDX-License-Identifier: Apache-2.0
// The frame of a page: a bar with its title, and its content.

import { html } from "../vendor/preact-htm.js";
import { Icon } from "./icons.js";
import { setQuery } from "./route.js";

/**
 * `note` is shown beside the title, `tools` at the right of the bar.
 * @param {{ title: string, note?: string, tools?: any, children: any, class?: string }} props
 */
export function PageFrame({ title, note = "", tools = null, children, class: kind = "" }) {
  return html`<div class="page ${kind}">
    <header class="bar">
      <h1>${title} ${note && html`<span class="number quiet note">${note}</span>`}</h1>
      <span class="grow"></span>${tools}
    </header>
    <div class="page-body" tabindex="-1">${children}</div></div>`;
}

/**
 * A search field whose text is part of the address.
 * @param {{ value: string, name?: string, label: string, placeholder?: string }} props
 */
export function SearchField({ value, name = "q", label, placeholder = label }) {
  return html`<div class="find"><${Icon} name="search" />
    <input type="search" aria-label=${label} placeholder=${placeholder} value=${value}
      onInput=${(event) => setQuery({ [name]: event.currentTarget.value })} /></div>`;
}

/** @param {{ onClick: Function }} props */
export function RefreshButton({ onClick }) {
  return html`<button class="button" onClick=${onClick}><${Icon} name="refresh" /> Refresh</button>`;
}

/**
 * Shown instead of an empty list; the children explain why it may be empty.
 * @param {{ title: string, children?: any }} props
 */
export function EmptyState({ title, children = null }) {
  return html`<div class="empty"><h2>${title}</h2>${children}</div>`;
}
