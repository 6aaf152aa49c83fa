// SPDX-License-Identifier: Apache-2.0
// A modal dialog: the browser's own, so that focus stays inside and Escape closes it.

import { html, useEffect, useRef } from "../vendor/preact-htm.js";
import { Icon } from "./icons.js";

let ids = 0;

export function Dialog({ title, class: kind = "", onClose, children, footer }) {
  const element = useRef();
  const id = useRef(`dialog-${++ids}`);
  useEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    dialog.showModal();
    return () => before?.focus?.();
  }, []);
  const onBackdrop = (event) => { if (event.target === element.current) onClose(); };
  return html`<dialog ref=${element} class=${kind} aria-labelledby=${id.current} onClose=${onClose} onCancel=${onClose}
    onMouseDown=${onBackdrop}>
    <header><h1 id=${id.current} class="grow">${title}</h1>
      <button class="button plain square" aria-label="Close" onClick=${onClose}><${Icon} name="cross" /></button></header>
    <div class="body" tabindex="0" role="region" aria-label=${title}>${children}</div>
    ${footer && html`<footer>${footer}</footer>`}
  </dialog>`;
}
