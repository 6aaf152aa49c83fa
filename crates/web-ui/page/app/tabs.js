// SPDX-License-Identifier: Apache-2.0
// A list of tabs whose selection is a parameter of the address.

import { html } from "../vendor/preact-htm.js";
import { setQuery } from "./route.js";

/**
 * `tabs` are `[id, label]`; `name` is the parameter and the prefix of the elements' ids.
 * @param {{ tabs: any[][], selected: string, name: string, label: string, children: any }} props
 */
export function Tabs({ tabs, selected, name, label, children }) {
  const onKeyDown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const index = tabs.findIndex(([id]) => id === selected);
    const [next] = tabs[(index + step + tabs.length) % tabs.length];
    setQuery({ [name]: next });
    document.getElementById(`${name}-${next}`)?.focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${onKeyDown}>
      ${tabs.map(
        ([
          id,
          text,
        ]) => html`<button key=${id} id=${`${name}-${id}`} role="tab" aria-selected=${id === selected}
        aria-controls="${name}-panel" tabindex=${id === selected ? 0 : -1} onClick=${() => setQuery({ [name]: id })}>${text}</button>`,
      )}</div>
    <div class="tab-panel" id="${name}-panel" role="tabpanel" aria-labelledby=${`${name}-${selected}`} tabindex="0">${children}</div>`;
}
