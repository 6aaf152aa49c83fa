// SPDX-License-Identifier: Apache-2.0
// What keys say on a serial line.

const ARROWS = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", Home: "H", End: "F" };
const KEYS = {
  Enter: "\r", Backspace: "\x7f", Tab: "\t", Escape: "\x1b", Insert: "\x1b[2~", Delete: "\x1b[3~", PageUp: "\x1b[5~", PageDown: "\x1b[6~",
  F1: "\x1bOP", F2: "\x1bOQ", F3: "\x1bOR", F4: "\x1bOS", F5: "\x1b[15~", F6: "\x1b[17~", F7: "\x1b[18~", F8: "\x1b[19~", F9: "\x1b[20~",
  F10: "\x1b[21~", F11: "\x1b[23~", F12: "\x1b[24~",
};
/** Keys with Ctrl that are not letters. */
const WITH_CONTROL = { "@": "\0", " ": "\0", "[": "\x1b", "\\": "\x1c", "^": "\x1e", _: "\x1f", "/": "\x1f" };

/** Whether a key leaves the terminal: otherwise nobody without a mouse would get out of it. */
export const leaves = (event) => event.ctrlKey && !event.altKey && event.key === "]";

/**
 * What a key says; null if it says nothing by itself. Letters come as input and not as keys, and what the
 * browser has for itself (Ctrl+Shift+C, Shift+Tab, anything with the system's key) stays with it.
 */
export function said(event, { applicationKeys = false, hasSelection = false } = {}) {
  const { key, ctrlKey, altKey, shiftKey, metaKey, isComposing } = event;
  if (metaKey || isComposing || (key === "Tab" && shiftKey)) return null;
  if (ctrlKey && shiftKey) return null;
  if (ctrlKey && !altKey) {
    if ((key === "c" && hasSelection) || key === "v") return null;
    if (/^[a-z]$/.test(key)) return String.fromCharCode(key.charCodeAt(0) & 31);
    return WITH_CONTROL[key] ?? null;
  }
  if (ARROWS[key]) return `\x1b${applicationKeys ? "O" : "["}${ARROWS[key]}`;
  if (KEYS[key]) return KEYS[key];
  // Alt makes letters of its own on some keyboards: only plain ones are meant.
  return altKey && !ctrlKey && /^[ -~]$/.test(key) ? `\x1b${key}` : null;
}
