// SPDX-License-Identifier: Apache-2.0
// Independent subscriptions to the journal over one connection.
//
// Each subscription has its own position, so a new one does not disturb the others: the connection is
// reopened from the oldest position, and each subscription skips what it already received. A hidden
// tab closes its connection, because browsers allow six connections per server; on return the stream
// resumes after the last event received.

import { Observable } from "./observable.js";

const MIN_RETRY_MS = 2000,
  MAX_RETRY_MS = 30_000;

/**
 * The delay before the next attempt: twice the previous one, within bounds.
 * @param {number} previous
 */
export const nextRetryDelay = (previous) =>
  Math.min(MAX_RETRY_MS, Math.max(MIN_RETRY_MS, previous * 2));

/**
 * @typedef {object} Subscription
 * @property {number | null} after the last event received; null for "from now on"
 * @property {string | null} node the UUID of the only node of interest; null for all
 * @property {(kind: string, data: string, seq: number) => void} onEvent
 * @property {(() => Promise<number | null>) | null} catchUp loads the missed changes by other means
 *   before a reconnect; resolves to the new position, or null if that failed
 *
 * @typedef {object} Transport
 * @property {(scope: { after: number | null, node: string | null }, handlers: {
 *   onOpen: () => void,
 *   onEvent: (kind: string, data: string, id: string | null) => void,
 *   onClose: () => void,
 * }) => { close: () => void }} connect
 * @property {() => Promise<unknown>} checkServer fails while the server is unreachable
 * @property {() => boolean} isHidden
 */

export class EventHub {
  /** `connecting`, `live` or `lost`; `idle` without subscriptions. */
  connection = new Observable(
    /** @type {"idle" | "connecting" | "live" | "lost"} */ (/** @type {unknown} */ ("idle")),
  );

  /** @type {Transport} */
  #transport;
  /** @type {Set<Subscription>} */
  #subscriptions = new Set();
  /** @type {{ node: string | null, position: number | null, close: () => void } | null} */
  #stream = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #retry;
  #delay = 0;
  #isUpdating = false;

  /** @param {Transport} transport */
  constructor(transport) {
    this.#transport = transport;
  }

  /**
   * Delivers all events after `after`, of one node or of all, until the returned function is called.
   * `onEvent` gets the unparsed JSON, so that listeners that do not need it do not pay for parsing.
   * @param {Partial<Subscription> & Pick<Subscription, "onEvent" | "after">} options
   */
  subscribe({ after, node = null, onEvent, catchUp = null }) {
    /** @type {Subscription} */
    const subscription = { after, node, onEvent, catchUp };
    this.#subscriptions.add(subscription);
    if (this.connection.value === "idle") this.connection.set("connecting");
    this.#scheduleUpdate();
    return () => {
      if (this.#subscriptions.delete(subscription)) this.#scheduleUpdate();
    };
  }

  /** Closes the connection of a hidden tab, or resumes it. */
  visibilityChanged() {
    if (!this.#subscriptions.size) return;
    if (this.#transport.isHidden()) {
      this.#close();
    } else if (!this.#stream) {
      this.#delay = 0;
      this.connection.set("connecting");
      this.#resume();
    }
  }

  /** Reports the loss of the network at once; an open stream would notice it only when used. */
  networkLost() {
    if (this.#stream) this.#connectionLost();
  }

  /** Closes the connection and reconnects after a delay. */
  #connectionLost() {
    if (!this.#subscriptions.size) return;
    this.connection.set("lost");
    this.#close();
    this.#delay = nextRetryDelay(this.#delay);
    this.#retry = setTimeout(async () => {
      const isReachable = await this.#transport.checkServer().then(
        () => true,
        () => false,
      );
      if (!this.#subscriptions.size || this.#transport.isHidden() || this.#stream) return;
      if (isReachable) this.#resume();
      else this.#connectionLost();
    }, this.#delay);
  }

  /** Subscriptions often change in pairs when views are switched; one update covers them. */
  #scheduleUpdate() {
    if (this.#isUpdating) return;
    this.#isUpdating = true;
    queueMicrotask(() => {
      this.#isUpdating = false;
      this.#update();
    });
  }

  #update() {
    if (!this.#subscriptions.size) {
      this.#close();
      this.connection.set("idle");
      return;
    }
    if (this.#transport.isHidden()) return;
    // A pending retry opens the stream for the new subscription as well.
    if (!this.#stream) {
      if (this.connection.value !== "lost") this.#open();
      return;
    }
    const { node, after } = this.#scope();
    const position = this.#stream.position;
    const isBehind = after !== null && position !== null && after < position;
    if (node !== this.#stream.node || isBehind) this.#open();
  }

  /** What one connection for all subscriptions has to deliver. */
  #scope() {
    const all = [...this.#subscriptions];
    const node = all.every((one) => one.node === all[0].node) ? all[0].node : null;
    const positions = all.map(({ after }) => after).filter((after) => after !== null);
    return { node, after: positions.length ? Math.min(...positions) : null };
  }

  async #resume() {
    const results = await Promise.all(
      [...this.#subscriptions].map(async (subscription) => {
        if (!subscription.catchUp) return true;
        const position = await subscription.catchUp().catch(() => null);
        // Not the maximum: after a restore of the database its positions are lower.
        if (position !== null) subscription.after = position;
        return position !== null;
      }),
    );
    if (!this.#subscriptions.size || this.#transport.isHidden() || this.#stream) return;
    if (results.every(Boolean)) this.#open();
    else this.#connectionLost();
  }

  #open() {
    this.#close();
    const scope = this.#scope();
    const stream = { node: scope.node, position: scope.after, close: () => {} };
    this.#stream = stream;
    const isCurrent = () => this.#stream === stream;
    const connection = this.#transport.connect(scope, {
      onOpen: () => {
        if (!isCurrent()) return;
        this.#delay = 0;
        this.connection.set("live");
      },
      onEvent: (kind, data, id) => {
        if (isCurrent() && id !== null) this.#deliver(kind, data, Number(id));
      },
      onClose: () => {
        if (isCurrent()) this.#connectionLost();
      },
    });
    stream.close = connection.close;
  }

  /**
   * @param {string} kind
   * @param {string} data
   * @param {number} seq
   */
  #deliver(kind, data, seq) {
    const stream = this.#stream;
    if (!stream) return;
    stream.position = seq;
    /** @type {string | undefined} */
    let nodeOfEvent;
    for (const subscription of [...this.#subscriptions]) {
      if (subscription.after !== null && seq <= subscription.after) continue;
      subscription.after = seq;
      if (subscription.node !== null && subscription.node !== stream.node) {
        nodeOfEvent ??= JSON.parse(data).node_uuid;
        if (nodeOfEvent !== subscription.node) continue;
      }
      subscription.onEvent(kind, data, seq);
    }
  }

  #close() {
    clearTimeout(this.#retry);
    const stream = this.#stream;
    this.#stream = null;
    stream?.close();
  }
}
