// SPDX-License-Identifier: Apache-2.0
// The selected machines. Clicks and keys change the selection as in a file manager.

import { Observable } from "../observable.js";

/**
 * `selected` are UUIDs, `active` is the row at the cursor, `anchor` the start of a range.
 * @type {Observable<{ selected: Set<string>, active: string | null, anchor: string | null }>}
 */
export const selection = new Observable(
  /** @type {any} */ ({ selected: new Set(), active: null, anchor: null }),
);

export function clearSelection() {
  selection.set({ ...selection.value, selected: new Set(), anchor: null });
}

/** @param {Iterable<string>} uuids */
export function setSelection(uuids) {
  selection.set({ ...selection.value, selected: new Set(uuids) });
}

/**
 * Selects these rows, or deselects them if all of them are selected.
 * @param {string[]} uuids
 */
export function toggleRows(uuids) {
  const selected = new Set(selection.value.selected);
  const isDeselect = uuids.every((uuid) => selected.has(uuid));
  for (const uuid of uuids)
    if (isDeselect) selected.delete(uuid);
    else selected.add(uuid);
  selection.set({ ...selection.value, selected });
}

/**
 * Toggles a row, or with Shift selects the range from the anchor; `order` are the rows as displayed.
 * @param {string} uuid
 * @param {{ shiftKey?: boolean, ctrlKey?: boolean, metaKey?: boolean }} modifiers
 * @param {string[]} order
 */
export function selectByClick(uuid, { shiftKey, ctrlKey, metaKey }, order) {
  const { selected, anchor } = selection.value;
  if (shiftKey && anchor !== null) {
    const kept = ctrlKey || metaKey ? selected : [];
    selection.set({
      selected: new Set([...kept, ...rangeBetween(order, anchor, uuid)]),
      active: uuid,
      anchor,
    });
    return;
  }
  const next = new Set(selected);
  if (!next.delete(uuid)) next.add(uuid);
  selection.set({ selected: next, active: uuid, anchor: uuid });
}

/**
 * Moves the cursor; with Shift the selection is the range from the anchor.
 * @param {string} uuid
 * @param {boolean} shiftKey
 * @param {string[]} order
 */
export function moveCursor(uuid, shiftKey, order) {
  const { selected, active, anchor } = selection.value;
  if (!shiftKey) {
    selection.set({ selected, active: uuid, anchor: uuid });
    return;
  }
  const from = anchor ?? active ?? uuid;
  selection.set({ selected: new Set(rangeBetween(order, from, uuid)), active: uuid, anchor: from });
}

/**
 * Deselects rows that are no longer displayed.
 * @param {Set<string>} displayed
 */
export function retainRows(displayed) {
  const { selected } = selection.value;
  const retained = [...selected].filter((uuid) => displayed.has(uuid));
  if (retained.length !== selected.size)
    selection.set({ ...selection.value, selected: new Set(retained) });
}

/**
 * @param {string[]} order
 * @param {string} first
 * @param {string} last
 */
function rangeBetween(order, first, last) {
  const [a, b] = [order.indexOf(first), order.indexOf(last)];
  if (a < 0 || b < 0) return [last];
  return order.slice(Math.min(a, b), Math.max(a, b) + 1);
}
