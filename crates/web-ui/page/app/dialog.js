// SPDX-License-Identifier: Apache-2.0
// A modal dialog. The browser's own element keeps the focus inside and closes on Escape.

import { html, useEffect, useRef } from "../vendor/preact-htm.js";
import { Icon } from "./icons.js";
import { raiseToasts } from "./toasts.js";

let lastId = 0;

/**
 * @param {object} props
 * @param {string} props.title
 * @param {string} [props.class]
 * @param {() => void} props.onClose
 * @param {any} props.children
 * @param {any} [props.footer]
 */
export function Dialog({ title, class: kind = "", onClose, children, footer = null }) {
  const element = useRef();
  const id = useRef(/** @type {string | null} */ (null));
  id.current ??= `dialog-${++lastId}`;
  useEffect(() => {
    const focused = document.activeElement;
    element.current.showModal();
    raiseToasts();
    return () => {
      if (focused instanceof HTMLElement) focused.focus();
    };
  }, []);
  const onBackdrop = (event) => {
    if (event.target === element.current) onClose();
  };
  return html`<dialog ref=${element} class=${kind} aria-labelledby=${id.current} onClose=${onClose} onCancel=${onClose}
    onMouseDown=${onBackdrop}>
    <header><h1 id=${id.current} class="grow">${title}</h1>
      <button class="button plain square" aria-label="Close" onClick=${onClose}><${Icon} name="cross" /></button></header>
    <div class="body" tabindex="0" role="region" aria-label=${title}>${children}</div>
    ${footer && html`<footer>${footer}</footer>`}
  </dialog>`;
}
