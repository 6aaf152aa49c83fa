// SPDX-License-Identifier: Apache-2.0
// Which machines are selected, and how clicks and keys change that: as in a list of files.

import { Subject } from "../subject.js";

/** `{chosen: Set of UUIDs, active: UUID at the cursor, anchor: where a range begins}`. */
export const selection = new Subject({ chosen: new Set(), active: null, anchor: null });

export function selectNone() {
  selection.set({ ...selection.value, chosen: new Set(), anchor: null });
}

export function selectOnly(uuids) {
  selection.set({ ...selection.value, chosen: new Set(uuids) });
}

/** Adds these, or takes them out if all of them are in already. */
export function toggleAll(uuids) {
  const chosen = new Set(selection.value.chosen);
  const all = uuids.every((uuid) => chosen.has(uuid));
  for (const uuid of uuids) if (all) chosen.delete(uuid); else chosen.add(uuid);
  selection.set({ ...selection.value, chosen });
}

/** A click on a machine: `order` is the list of UUIDs as shown, for ranges. */
export function click(uuid, { shiftKey, ctrlKey, metaKey }, order) {
  const { chosen, anchor } = selection.value;
  if (shiftKey && anchor !== null) {
    selection.set({ chosen: new Set([...(ctrlKey || metaKey ? chosen : []), ...between(order, anchor, uuid)]), active: uuid,
      anchor });
    return;
  }
  const next = new Set(chosen);
  if (!next.delete(uuid)) next.add(uuid);
  selection.set({ chosen: next, active: uuid, anchor: uuid });
}

/** Moves the cursor; with Shift the range grows. */
export function move(uuid, shiftKey, order) {
  const { chosen, active, anchor } = selection.value;
  if (!shiftKey) {
    selection.set({ chosen, active: uuid, anchor: uuid });
    return;
  }
  const from = anchor ?? active ?? uuid;
  selection.set({ chosen: new Set(between(order, from, uuid)), active: uuid, anchor: from });
}

/** Forgets machines that are no longer shown or no longer exist. */
export function keepOnly(known) {
  const { chosen } = selection.value;
  const kept = [...chosen].filter((uuid) => known.has(uuid));
  if (kept.length !== chosen.size) selection.set({ ...selection.value, chosen: new Set(kept) });
}

function between(order, one, other) {
  const [a, b] = [order.indexOf(one), order.indexOf(other)];
  if (a < 0 || b < 0) return [other];
  return order.slice(Math.min(a, b), Math.max(a, b) + 1);
}
