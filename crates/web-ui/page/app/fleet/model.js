// SPDX-License-Identifier: Apache-2.0
// All machines, kept in sync with the server.
//
// One request loads all rows, with the sequence number of the last event they include. After that an
// event only triggers a request for the changed rows, at most a few times a second. So the client
// never interprets events, and a thousand events a second cost one or two requests.

import { get } from "../api.js";
import { nextRetryDelay } from "../event_hub.js";
import { events } from "../event_stream.js";
import { EVENT_KINDS } from "../generated.js";
import { Observable } from "../observable.js";
import { showError } from "../toasts.js";
import { compareRows, decodeRows } from "./rows.js";

const REFRESH_MS = 350;
const RELOAD_ALL_MS = 5 * 60 * 1000;
/** How long a changed row stays in `changed`. */
const CHANGED_MS = 5000;

/** @type {Observable<FleetState>} */
export const fleet = new Observable(
  /** @type {FleetState} */ ({
    rows: [],
    byId: new Map(),
    verbs: {},
    ready: false,
    changed: new Map(),
    asOf: -Infinity,
  }),
);

let users = 0;
/** @type {(() => void) | null} */
let unsubscribe = null;
/** @type {number | null} */
let seq = null;
/** @type {Promise<boolean>} */
let queue = Promise.resolve(true);
let isLoading = false;
let isRefreshDue = false;
let delay = REFRESH_MS;
/** @type {ReturnType<typeof setTimeout> | null} */
let timer = null;
/** @type {ReturnType<typeof setInterval> | undefined} */
let reloadTimer;

/** Keeps the fleet up to date until the returned function is called. */
export function followFleet() {
  users += 1;
  if (users === 1) start();
  return () => {
    users -= 1;
    if (users === 0) stop();
  };
}

/** Loads the fleet once, for views that only search it. */
export const loadFleet = () => load();

/** Loads changes soon, after a request that will cause some. */
export function refreshSoon() {
  if (users > 0) scheduleRefresh();
}

function start() {
  load();
  reloadTimer = setInterval(() => {
    if (!document.hidden) load({ all: true });
  }, RELOAD_ALL_MS);
}

function stop() {
  unsubscribe?.();
  unsubscribe = null;
  cancelRefresh();
  isRefreshDue = false;
  delay = REFRESH_MS;
  clearInterval(reloadTimer);
}

function scheduleRefresh() {
  if (isLoading) {
    isRefreshDue = true;
    return;
  }
  timer ??= setTimeout(() => {
    timer = null;
    load();
  }, delay);
}

function cancelRefresh() {
  if (timer !== null) clearTimeout(timer);
  timer = null;
}

/** @param {string} kind */
function onEvent(kind) {
  const known = EVENT_KINDS[/** @type {EventKind} */ (kind)];
  // An event of an unknown kind may change rows.
  if (known?.changesRow ?? true) scheduleRefresh();
}

/**
 * Loads changes, or all rows; returns whether that succeeded. Requests are sequential, because the
 * older of two concurrent responses could arrive last.
 */
function load({ all = false } = {}) {
  queue = queue.then(async () => {
    isLoading = true;
    cancelRefresh();
    const succeeded = await (all || seq === null ? loadAll() : loadChanges(seq)).then(
      () => true,
      (error) => {
        showError(error);
        return false;
      },
    );
    isLoading = false;
    delay = succeeded ? REFRESH_MS : nextRetryDelay(delay);
    if (users === 0) return succeeded;
    if (succeeded) unsubscribe ??= events.subscribe({ after: seq, onEvent, catchUp });
    // After a failure no event may come, so the retry is scheduled here.
    if (isRefreshDue || !succeeded) {
      isRefreshDue = false;
      scheduleRefresh();
    }
    return succeeded;
  });
  return queue;
}

/** One response replaces the events missed while the tab was hidden. */
async function catchUp() {
  return (await load()) ? seq : null;
}

async function loadAll() {
  const asOf = performance.now();
  /** @type {FleetResponse} */
  const response = await get("/v1/ferrite/fleet");
  const rows = decodeRows(response).sort(compareRows);
  seq = response.seq;
  fleet.set({
    rows,
    byId: byUuid(rows),
    verbs: response.verbs ?? {},
    ready: true,
    changed: new Map(),
    asOf,
  });
}

/** @param {number} after */
async function loadChanges(after) {
  const asOf = performance.now();
  /** @type {FleetResponse} */
  const response = await get(`/v1/ferrite/fleet?after=${after}`);
  // An older sequence number means that the database was restored.
  if (response.seq < after) {
    await loadAll();
    return;
  }
  seq = response.seq;
  const rows = decodeRows(response);
  if (response.complete) {
    rows.sort(compareRows);
    fleet.set({ ...fleet.value, rows, byId: byUuid(rows), asOf });
  } else {
    merge(rows, response.deleted ?? [], asOf);
  }
}

/** @param {FleetRow[]} rows */
const byUuid = (rows) => new Map(rows.map((row) => [row.uuid, row]));

/**
 * @param {FleetRow[]} updates
 * @param {string[]} removed
 * @param {number} asOf
 */
function merge(updates, removed, asOf) {
  const now = performance.now();
  const { byId, changed } = fleet.value;
  let { rows } = fleet.value;
  let needsSort = removed.length > 0;
  for (const row of updates) {
    const before = byId.get(row.uuid);
    if (!before || before.name !== row.name) needsSort = true;
    const isVisibleChange =
      before?.provision_state !== row.provision_state || before?.power_state !== row.power_state;
    if (before && isVisibleChange) changed.set(row.uuid, now);
    byId.set(row.uuid, row);
  }
  for (const uuid of removed) byId.delete(uuid);
  if (needsSort) rows = [...byId.values()].sort(compareRows);
  else if (updates.length) rows = rows.map((row) => byId.get(row.uuid) ?? row);
  for (const [uuid, at] of changed) if (now - at > CHANGED_MS) changed.delete(uuid);
  fleet.set({ ...fleet.value, rows, asOf });
}
