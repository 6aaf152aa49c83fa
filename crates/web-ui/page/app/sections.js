// SPDX-License-Identifier: Apache-2.0
// The frame of a page that is a list or a form: a bar with its name, and what is below it.

import { html } from "../vendor/preact-htm.js";
import { Icon } from "./icons.js";
import { setQuery } from "./route.js";

/** `note` stands beside the title, `tools` at the right of the bar. */
export function Sheet({ title, note, tools, children, class: kind = "" }) {
  return html`<div class="sheet ${kind}"><header class="bar"><h1>${title} ${note && html`<span class="number quiet note">${note}
    </span>`}</h1><span class="grow"></span>${tools}</header><div class="sheet-body" tabindex="-1">${children}</div></div>`;
}

/** A search field that keeps its text in the address. */
export function Find({ value, name = "q", label, placeholder = label }) {
  return html`<div class="find"><${Icon} name="search" /><input type="search" aria-label=${label} placeholder=${placeholder}
    value=${value} onInput=${(event) => setQuery({ [name]: event.currentTarget.value })} /></div>`;
}

/** Nothing to show, and why that may be. */
export function Nothing({ title, children }) {
  return html`<div class="empty"><h2>${title}</h2>${children}</div>`;
}
