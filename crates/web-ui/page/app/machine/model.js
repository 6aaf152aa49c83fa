// SPDX-License-Identifier: Apache-2.0
// One machine, kept in sync with the server: its node, its row of the fleet (which has the wait
// reason), and its timeline, to which events are appended.

import { ferritePath, get, nodePath } from "../api.js";
import { caller, matchesRule } from "../caller.js";
import { nextRetryDelay } from "../event_hub.js";
import { connection, events } from "../event_stream.js";
import { decodeRows } from "../fleet/rows.js";
import { Observable } from "../observable.js";
import { showError } from "../toasts.js";

/** Timeline entries loaded at first. */
const INITIAL_ENTRIES = 600;
const PAGE_SIZE = 1000;
const REFRESH_MS = 250;
/** The interval of refreshes for callers who may not read the timeline, so get no events either. */
const POLL_MS = 5000;
/** Entries kept beyond those that were loaded explicitly, because a page can stay open for weeks. */
const MAX_NEW_ENTRIES = 2000;

/**
 * @typedef {object} MachineState
 * @property {NodeRecord | null} node null until it is loaded
 * @property {FleetRow | null} row
 * @property {string[]} verbs the verbs that the current state allows
 * @property {JournalEntry[]} entries
 * @property {boolean} isComplete whether the entries begin with the first one
 * @property {import("../api.js").ApiError | null} error
 */

/** @extends {Observable<MachineState>} */
export class Machine extends Observable {
  /** @type {string} */
  #ident;
  /** @type {(() => void) | null} */
  #unsubscribe = null;
  /** @type {ReturnType<typeof setTimeout> | null} */
  #timer = null;
  #delay = REFRESH_MS;
  /** @type {Promise<unknown>} */
  #queue = Promise.resolve();
  #maxEntries = MAX_NEW_ENTRIES;
  #isStopped = false;

  /** @param {string} ident */
  constructor(ident) {
    super(
      /** @type {MachineState} */ ({
        node: null,
        row: null,
        verbs: [],
        entries: [],
        isComplete: false,
        error: null,
      }),
    );
    this.#ident = ident;
    this.#start();
  }

  stop() {
    this.#isStopped = true;
    this.#unsubscribe?.();
    this.#cancelRefresh();
  }

  /**
   * Loads the node again. Requests are sequential, because the older of two concurrent responses could
   * arrive last.
   */
  refresh() {
    const attempt = this.#queue.then(() => this.#load());
    this.#queue = attempt.catch((error) => {
      // The first load retries by itself; later no event may come that triggers a refresh.
      if (!this.#unsubscribe || this.#isStopped || error.status === 404) return;
      this.#delay = nextRetryDelay(this.#delay);
      this.#scheduleRefresh();
    });
    return attempt;
  }

  async #load() {
    if (this.#unsubscribe) this.#cancelRefresh();
    const ident = this.value.node?.uuid ?? this.#ident;
    const [node, fleet] = await Promise.all([
      get(nodePath(ident)),
      get(`/v1/ferrite/fleet?node=${encodeURIComponent(ident)}`),
    ]);
    if (this.#unsubscribe) this.#delay = REFRESH_MS;
    if (this.#isStopped) return;
    const [row = null] = decodeRows(fleet);
    const verbs = fleet.verbs?.[node.provision_state] ?? [];
    this.set({ ...this.value, node, row, verbs, error: null });
  }

  /** Loads the timeline from its beginning. */
  async loadAll() {
    const { node } = this.value;
    if (!node) return;
    /** @type {JournalEntry[]} */
    const entries = [];
    for (let after = 0; ;) {
      const { timeline } = await get(
        ferritePath(node.uuid, `/timeline?after=${after}&limit=${PAGE_SIZE}`),
      );
      entries.push(...timeline.map(withTimestamp));
      if (timeline.length < PAGE_SIZE) break;
      after = timeline.at(-1).seq;
    }
    const last = entries.at(-1)?.seq ?? 0;
    this.#maxEntries = entries.length + MAX_NEW_ENTRIES;
    const newer = this.value.entries.filter(({ seq }) => seq > last);
    this.set({ ...this.value, entries: [...entries, ...newer], isComplete: true });
  }

  async #start() {
    try {
      await this.refresh();
      const { node } = this.value;
      if (!node) return;
      const { uuid } = node;
      if (!matchesRule(caller.value, "ferrite:node:timeline", node)) {
        this.#poll();
        return;
      }
      const { timeline } = await get(ferritePath(uuid, `/timeline?last=${INITIAL_ENTRIES}`));
      if (this.#isStopped) return;
      this.set({
        ...this.value,
        entries: timeline.map(withTimestamp),
        isComplete: timeline.length < INITIAL_ENTRIES,
      });
      this.#follow(uuid, timeline.at(-1)?.seq ?? 0);
    } catch (caught) {
      if (this.#isStopped) return;
      const error = /** @type {import("../api.js").ApiError} */ (caught);
      this.set({ ...this.value, error });
      // Only server and network errors are retried.
      if (error.status >= 400 && error.status < 500) return;
      this.#delay = nextRetryDelay(this.#delay);
      this.#timer = setTimeout(() => {
        this.#timer = null;
        this.#start();
      }, this.#delay);
    }
  }

  #poll() {
    this.set({ ...this.value, isComplete: true });
    const timer = setInterval(() => {
      if (!document.hidden && this.#timer === null) this.#scheduleRefresh();
    }, POLL_MS);
    this.#unsubscribe = () => clearInterval(timer);
  }

  /**
   * Follows the events after `seq`. The node can be older than the timeline, so it is loaded again when
   * the stream is connected.
   * @param {string} uuid
   * @param {number} seq
   */
  #follow(uuid, seq) {
    this.#delay = REFRESH_MS;
    const refreshNow = () => {
      this.#cancelRefresh();
      this.#delay = REFRESH_MS;
      this.#scheduleRefresh();
    };
    const unwatch = connection.subscribe((state) => {
      if (state === "live") refreshNow();
    });
    const unfollow = events.subscribe({
      after: seq,
      node: uuid,
      onEvent: (_kind, data) => this.#append(JSON.parse(data)),
    });
    this.#unsubscribe = () => {
      unwatch();
      unfollow();
    };
    if (connection.value === "live") refreshNow();
  }

  /** @param {JournalEntry} entry */
  #append(entry) {
    const { entries, isComplete } = this.value;
    const last = entries.at(-1);
    if (last && entry.seq <= last.seq) return;
    const kept = [...entries, withTimestamp(entry)].slice(-this.#maxEntries);
    this.set({
      ...this.value,
      entries: kept,
      isComplete: isComplete && kept.length > entries.length,
    });
    // Console output does not change the node.
    if (entry.event.by !== "console") this.#scheduleRefresh();
  }

  #scheduleRefresh() {
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.refresh().catch((error) => {
        if (error.status === 404) this.set({ ...this.value, error });
        else showError(error);
      });
    }, this.#delay);
  }

  #cancelRefresh() {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }
}

/**
 * @param {JournalEntry} entry
 * @returns {JournalEntry}
 */
const withTimestamp = (entry) => ({ ...entry, timestamp: Date.parse(entry.at) });
