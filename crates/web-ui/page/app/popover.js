// SPDX-License-Identifier: Apache-2.0
// A button that opens a small panel beside it: menus and lists to choose from, by mouse and by keys.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact-htm.js";

/**
 * `button` gives the button's content, `children` the panel's: a function that gets `close`. The panel
 * is as wide as it needs and stays within the window.
 */
export function Popover({ class: kind = "button", label, content, align = "left", children, disabled = false, role = "menu" }) {
  const [open, setOpen] = useState(false);
  const button = useRef(), panel = useRef();
  const close = () => { setOpen(false); button.current?.focus(); };

  useLayoutEffect(() => {
    if (!open) return;
    const at = button.current.getBoundingClientRect();
    const { style, offsetWidth: width, offsetHeight: height } = panel.current;
    const left = align === "right" ? at.right - width : at.left;
    style.left = `${Math.max(8, Math.min(left, innerWidth - width - 8))}px`;
    const below = at.bottom + 4;
    style.top = `${below + height > innerHeight - 8 && at.top - height - 4 > 8 ? at.top - height - 4 : Math.max(8,
      Math.min(below, innerHeight - height - 8))}px`;
    panel.current.querySelector("input,button:not(:disabled)")?.focus();
  }, [open]);

  useEffect(() => {
    if (!open) return undefined;
    const outside = (event) => {
      if (!panel.current?.contains(event.target) && !button.current?.contains(event.target)) setOpen(false);
    };
    addEventListener("pointerdown", outside, true);
    return () => removeEventListener("pointerdown", outside, true);
  }, [open]);

  const onKeyDown = (event) => {
    if (event.key === "Escape") { event.stopPropagation(); event.preventDefault(); close(); return; }
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    const items = [...panel.current.querySelectorAll("input,button:not(:disabled)")];
    const step = event.key === "ArrowDown" ? 1 : -1;
    items[(items.indexOf(document.activeElement) + step + items.length) % items.length]?.focus();
  };

  return html`<button ref=${button} class=${kind} type="button" aria-label=${label} aria-haspopup=${role} aria-expanded=${open}
      disabled=${disabled} onClick=${() => setOpen(!open)}>${content}</button>
    ${open && html`<div ref=${panel} class="popover" role=${role} aria-label=${label} onKeyDown=${onKeyDown}>${children(close)}
      </div>`}`;
}
