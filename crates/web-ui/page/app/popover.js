// SPDX-License-Identifier: Apache-2.0
// A button that opens a panel beside it: menus and filters, usable by mouse and keyboard.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact-htm.js";

/** Distance from the edges of the window and from the button, in pixels. */
const MARGIN = 8,
  GAP = 4;

/**
 * `content` is the button's content; `children` renders the panel and gets `close`. The panel stays
 * within the window.
 * @param {object} props
 * @param {string} [props.class]
 * @param {string} props.label
 * @param {any} props.content
 * @param {string} [props.align]
 * @param {any} props.children
 * @param {boolean} [props.disabled]
 * @param {string} [props.role]
 */
export function Popover({
  class: kind = "button",
  label,
  content,
  align = "left",
  children,
  disabled = false,
  role = "menu",
}) {
  const [open, setOpen] = useState(false);
  const button = useRef(),
    panel = useRef();
  const close = () => {
    setOpen(false);
    button.current?.focus();
  };

  useLayoutEffect(() => {
    if (!open) return;
    position(panel.current, button.current.getBoundingClientRect(), align);
    focusableItems(panel.current)[0]?.focus();
  }, [open]);

  useEffect(() => {
    if (!open) return undefined;
    const onPointerDown = (event) => {
      if (!panel.current?.contains(event.target) && !button.current?.contains(event.target))
        setOpen(false);
    };
    // On the window, because the focus may be outside the panel.
    const onEscape = (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      event.preventDefault();
      close();
    };
    addEventListener("pointerdown", onPointerDown, true);
    addEventListener("keydown", onEscape, true);
    return () => {
      removeEventListener("pointerdown", onPointerDown, true);
      removeEventListener("keydown", onEscape, true);
    };
  }, [open]);

  const onKeyDown = (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    const items = focusableItems(panel.current);
    const step = event.key === "ArrowDown" ? 1 : -1;
    const index = items.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    items[(index + step + items.length) % items.length]?.focus();
  };

  return html`<button ref=${button} class=${kind} type="button" aria-label=${label} aria-haspopup=${role} aria-expanded=${open}
      disabled=${disabled} onClick=${() => setOpen(!open)}>${content}</button>
    ${open && html`<div ref=${panel} class="popover" role=${role} aria-label=${label} onKeyDown=${onKeyDown}>${children(close)}</div>`}`;
}

/**
 * @param {HTMLElement} panel
 * @returns {HTMLElement[]}
 */
function focusableItems(panel) {
  /** @type {NodeListOf<HTMLElement>} */
  const items = panel.querySelectorAll("input,summary,button:not(:disabled)");
  // Items of a closed <details> cannot be focused.
  return [...items].filter((item) => item.getClientRects().length > 0);
}

/**
 * Places the panel below the button, or above it if there is no room.
 * @param {HTMLElement} panel
 * @param {DOMRect} anchor
 * @param {string} align
 */
function position(panel, anchor, align) {
  const { style, offsetWidth: width, offsetHeight: height } = panel;
  const left = align === "right" ? anchor.right - width : anchor.left;
  style.left = `${Math.max(MARGIN, Math.min(left, innerWidth - width - MARGIN))}px`;
  const below = anchor.bottom + GAP,
    above = anchor.top - height - GAP;
  const fitsBelow = below + height <= innerHeight - MARGIN;
  const top = fitsBelow || above <= MARGIN ? Math.min(below, innerHeight - height - MARGIN) : above;
  style.top = `${Math.max(MARGIN, top)}px`;
}
