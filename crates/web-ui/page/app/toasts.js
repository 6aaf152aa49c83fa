// SPDX-License-Identifier: Apache-2.0
// Short messages in the corner: API errors and confirmations.

import { html, useEffect, useRef } from "../vendor/preact-htm.js";
import { ApiError } from "./api.js";
import { Icon } from "./icons.js";
import { Observable, useObservable } from "./observable.js";

const SHOWN_MS = { good: 4000, bad: 12000 };
const MAX_SHOWN = 4;
/** @typedef {{ id: number, text: string, kind: "good" | "bad" }} Toast */
const toasts = new Observable(/** @type {Toast[]} */ ([]));
let nextId = 1;

/**
 * @param {string} text
 * @param {"good" | "bad"} [kind]
 */
export function showMessage(text, kind = "good") {
  const toast = { id: nextId++, text, kind };
  const others = toasts.value.filter((other) => other.text !== text);
  toasts.set([...others, toast].slice(-MAX_SHOWN));
  setTimeout(() => dismiss(toast.id), SHOWN_MS[kind]);
}

/** @param {Error} error */
export function showError(error) {
  // The sign-in form appears after a 401.
  if (!(error instanceof ApiError) || error.status !== 401) showMessage(error.message, "bad");
}

/** Shows the messages above a dialog that was opened after them. */
export const raiseToasts = () => toasts.set([...toasts.value]);

/** @param {number} id */
function dismiss(id) {
  toasts.set(toasts.value.filter((toast) => toast.id !== id));
}

export function Toasts() {
  const shown = useObservable(toasts);
  const element = useRef();
  // A popover is in the top layer like a modal dialog; showing it again puts it above the dialog.
  useEffect(() => {
    if (element.current.matches(":popover-open")) element.current.hidePopover();
    if (shown.length) element.current.showPopover();
  }, [shown]);
  return html`<div class="toasts" ref=${element} popover="manual" role="log" aria-label="Messages" aria-live="polite">
    ${shown.map(
      (toast) => html`<div key=${toast.id} class="toast ${toast.kind}">
      <${Icon} name=${toast.kind === "bad" ? "warning" : "check"} />
      <span class="grow">${toast.text}</span>
      <button class="button plain square" aria-label="Dismiss" onClick=${() => dismiss(toast.id)}><${Icon} name="cross" /></button>
    </div>`,
    )}
  </div>`;
}
