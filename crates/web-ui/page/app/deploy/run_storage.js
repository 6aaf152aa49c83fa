// SPDX-License-Identifier: Apache-2.0
// The machines of a running deployment: in the address, or, if they are too many, in the session
// storage of the tab. Rejected machines are in the session storage.

const MAX_IN_ADDRESS = 100;
const IN_TAB = "in-this-tab";
/** @param {string | null} startedAt */
const runKey = (startedAt) => `ferrite-run-${startedAt}`;
/** @param {string | null} startedAt */
const rejectedKey = (startedAt) => `ferrite-refused-${startedAt}`;

/**
 * Stores a run; returns the query parameters that identify it.
 * @param {string[]} uuids
 * @param {import("./plan.js").FailedMachine[]} rejected
 */
export function storeRun(uuids, rejected) {
  const at = String(Date.now());
  const text = uuids.join(",");
  // Without storage, rejected machines are shown only once, and the address is long.
  tryStore(rejectedKey(at), JSON.stringify(rejected));
  if (uuids.length <= MAX_IN_ADDRESS || !tryStore(runKey(at), text)) return { run: text, at };
  return { run: IN_TAB, at };
}

/**
 * @param {string} key
 * @param {string} value
 */
function tryStore(key, value) {
  try {
    sessionStorage.setItem(key, value);
    return true;
  } catch {
    return false;
  }
}

/** @param {URLSearchParams} query */
export const isStoredInTab = (query) => query.get("run") === IN_TAB;

/**
 * The UUIDs of a run; null in a tab other than the one that stores them.
 * @param {URLSearchParams} query
 */
export function readRun(query) {
  const text = isStoredInTab(query)
    ? sessionStorage.getItem(runKey(query.get("at")))
    : query.get("run");
  return text?.split(",") ?? null;
}

/**
 * The machines that were rejected at the start of a run.
 * @param {URLSearchParams} query
 * @returns {import("./plan.js").FailedMachine[]}
 */
export function readRejected(query) {
  return JSON.parse(sessionStorage.getItem(rejectedKey(query.get("at"))) ?? "[]");
}
