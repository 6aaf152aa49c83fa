// SPDX-License-Identifier: Apache-2.0
// Where the machines of a deployment are written down: in the address, or, if they are too many for one,
// in the tab, with the address naming the place. What was refused is in the tab, too.

const MOST_IN_ADDRESS = 100;
const IN_TAB = "in-this-tab";
const place = (at) => `ferrite-run-${at}`;

const placeOfRefused = (at) => `ferrite-refused-${at}`;

/** Writes the machines down; gives the parts of the query that lead to them. */
export function keepRun(uuids, refused) {
  const at = String(Date.now());
  const text = uuids.join(",");
  try { sessionStorage.setItem(placeOfRefused(at), JSON.stringify(refused)); } catch { /* They were said when it happened. */ }
  if (uuids.length <= MOST_IN_ADDRESS) return { run: text, at };
  // A browser that keeps nothing gets the long address: it may still do.
  try { sessionStorage.setItem(place(at), text); } catch { return { run: text, at }; }
  return { run: IN_TAB, at };
}

export const isInTab = (query) => query.get("run") === IN_TAB;

/** The UUIDs that were written down; null in another tab than the one that has them. */
export function readRun(query) {
  const text = isInTab(query) ? sessionStorage.getItem(place(query.get("at"))) : query.get("run");
  return text?.split(",") ?? null;
}

/** The machines that were refused when it began: `{label, why}` each. */
export function readRefused(query) {
  return JSON.parse(sessionStorage.getItem(placeOfRefused(query.get("at"))) ?? "[]");
}
