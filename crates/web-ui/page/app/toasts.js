// SPDX-License-Identifier: Apache-2.0
// Short messages in the corner: what the API refused, in its own words, and what was done.

import { html } from "../vendor/preact-htm.js";
import { Subject, useSubject } from "./subject.js";
import { Icon } from "./icons.js";

const SHOWN_MS = { good: 4000, bad: 12000 };
const MOST = 4;
const toasts = new Subject([]);
let next = 1;

export function say(text, kind = "good") {
  const toast = { id: next++, text, kind };
  const others = toasts.value.filter((other) => other.text !== text);
  toasts.set([...others, toast].slice(-MOST));
  setTimeout(() => dismiss(toast.id), SHOWN_MS[kind]);
}

/** Shows what went wrong. */
export function complain(error) {
  // Who has to sign in again is told so by the form for it.
  if (error.status !== 401) say(error.message, "bad");
}

function dismiss(id) {
  toasts.set(toasts.value.filter((toast) => toast.id !== id));
}

export function Toasts() {
  const shown = useSubject(toasts);
  return html`<div class="toasts" role="log" aria-label="Messages" aria-live="polite">
    ${shown.map((toast) => html`<div key=${toast.id} class="toast ${toast.kind}">
      <${Icon} name=${toast.kind === "bad" ? "warning" : "check"} />
      <span class="grow">${toast.text}</span>
      <button class="button plain square" aria-label="Dismiss" onClick=${() => dismiss(toast.id)}><${Icon} name="cross" /></button>
    </div>`)}
  </div>`;
}
