// SPDX-License-Identifier: Apache-2.0
// The byte sequences that keys send on a serial line, as a VT100 terminal does.

/** @type {Record<string, string>} */
const CURSOR_KEYS = {
  ArrowUp: "A",
  ArrowDown: "B",
  ArrowRight: "C",
  ArrowLeft: "D",
  Home: "H",
  End: "F",
};
/** @type {Record<string, string>} */
const SPECIAL_KEYS = {
  Enter: "\r",
  Backspace: "\x7f",
  Tab: "\t",
  Escape: "\x1b",
  Insert: "\x1b[2~",
  Delete: "\x1b[3~",
  PageUp: "\x1b[5~",
  PageDown: "\x1b[6~",
  F1: "\x1bOP",
  F2: "\x1bOQ",
  F3: "\x1bOR",
  F4: "\x1bOS",
  F5: "\x1b[15~",
  F6: "\x1b[17~",
  F7: "\x1b[18~",
  F8: "\x1b[19~",
  F9: "\x1b[20~",
  F10: "\x1b[21~",
  F11: "\x1b[23~",
  F12: "\x1b[24~",
};
/** @type {Record<string, string>} */
const CONTROL_KEYS = {
  "@": "\0",
  " ": "\0",
  "[": "\x1b",
  "\\": "\x1c",
  "^": "\x1e",
  _: "\x1f",
  "/": "\x1f",
};

/** @typedef {Pick<KeyboardEvent, "key"> & Partial<KeyboardEvent>} KeyPress */

/**
 * Whether a key leaves the terminal, which keyboard users need.
 * @param {KeyPress} event
 */
export const isLeaveKey = (event) => !!event.ctrlKey && !event.altKey && event.key === "]";

/**
 * The sequence of a key; null if it sends none. Printable characters arrive as input events instead,
 * and the browser keeps its own shortcuts (Ctrl+Shift+C, Shift+Tab, combinations with Meta).
 * @param {KeyPress} event
 */
export function keySequence(event, { applicationKeys = false, hasSelection = false } = {}) {
  const { key, ctrlKey, altKey, shiftKey, metaKey, isComposing } = event;
  if (metaKey || isComposing || (key === "Tab" && shiftKey)) return null;
  if (ctrlKey && shiftKey) return null;
  if (ctrlKey && !altKey) {
    // Copy and paste.
    if ((key === "c" && hasSelection) || key === "v") return null;
    if (/^[a-z]$/.test(key)) return String.fromCharCode(key.charCodeAt(0) & 31);
    return CONTROL_KEYS[key] ?? null;
  }
  if (CURSOR_KEYS[key]) return `\x1b${applicationKeys ? "O" : "["}${CURSOR_KEYS[key]}`;
  if (SPECIAL_KEYS[key]) return SPECIAL_KEYS[key];
  // Alt produces other characters on some keyboards; only ASCII is sent with an escape.
  return altKey && !ctrlKey && /^[ -~]$/.test(key) ? `\x1b${key}` : null;
}
