// SPDX-License-Identifier: Apache-2.0
// One machine, kept as the server has it: its node, its row of the fleet (which says why it waits), and
// its timeline, to which events are added as they come.

import { ferritePath, get, nodePath } from "../api.js";
import { decode } from "../fleet/model.js";
import { connection, follow, longer } from "../live.js";
import { Subject } from "../subject.js";
import { complain } from "../toasts.js";

const AT_FIRST = 600;
const ASK_AFTER_MS = 250;
/** So many entries are kept beyond those that were asked for: a page may be open for weeks. */
const MOST_KEPT = 2000;

/** `{node, row, verbs, entries, isWhole, error}`; `node` is null until it is there. */
export class Machine extends Subject {
  #ident;
  #stop = null;
  #timer = null;
  #pause = ASK_AFTER_MS;
  #queue = Promise.resolve();
  #most = MOST_KEPT;
  #ended = false;

  constructor(ident) {
    super({ node: null, row: null, verbs: [], entries: [], isWhole: false, error: null });
    this.#ident = ident;
    this.#begin();
  }

  end() {
    this.#ended = true;
    this.#stop?.();
    this.#forget();
  }

  /** Asks for the node again, after something was changed. One request at a time: of two at once, the older answer may come last. */
  refresh() {
    const turn = this.#queue.then(() => this.#ask());
    this.#queue = turn.catch((error) => {
      // The first load tries again by itself; later no event need come that would make us ask.
      if (!this.#stop || this.#ended || error.status === 404) return;
      this.#pause = longer(this.#pause);
      this.#soon();
    });
    return turn;
  }

  async #ask() {
    // What was to be asked later is asked now.
    if (this.#stop) this.#forget();
    const ident = this.value.node?.uuid ?? this.#ident;
    const [node, answer] = await Promise.all([get(nodePath(ident)), get(`/v1/ferrite/fleet?node=${encodeURIComponent(ident)}`)]);
    const [row] = decode(answer);
    if (this.#stop) this.#pause = ASK_AFTER_MS;
    if (!this.#ended) this.set({ ...this.value, node, row, verbs: answer.verbs?.[node.provision_state] ?? [], error: null });
  }

  /** Gets the whole timeline, from the beginning. */
  async loadAll() {
    const entries = [];
    let after = 0;
    for (;;) {
      const { timeline } = await get(ferritePath(this.value.node.uuid, `/timeline?after=${after}&limit=1000`));
      entries.push(...timeline.map(withMoment));
      if (timeline.length < 1000) break;
      after = timeline.at(-1).seq;
    }
    const last = entries.at(-1)?.seq ?? 0;
    this.#most = entries.length + MOST_KEPT;
    this.set({ ...this.value, entries: [...entries, ...this.value.entries.filter((entry) => entry.seq > last)], isWhole: true });
  }

  async #begin() {
    try {
      await this.refresh();
      const { uuid } = this.value.node;
      const { timeline } = await get(ferritePath(uuid, `/timeline?last=${AT_FIRST}`));
      if (this.#ended) return;
      this.set({ ...this.value, entries: timeline.map(withMoment), isWhole: timeline.length < AT_FIRST });
      this.#pause = ASK_AFTER_MS;
      // Once the stream is up, at first and again: the node may be older than where the stream begins.
      const unwatch = connection.watch((state) => {
        if (state !== "live") return;
        this.#forget();
        this.#pause = ASK_AFTER_MS;
        this.#soon();
      });
      const unfollow = follow({ after: timeline.at(-1)?.seq ?? 0, node: uuid, hear: (_, text) => this.#hear(JSON.parse(text)) });
      this.#stop = () => { unwatch(); unfollow(); };
    } catch (error) {
      if (this.#ended) return;
      this.set({ ...this.value, error });
      // A refusal stays one; only trouble passes.
      if (error.status >= 400 && error.status < 500) return;
      this.#pause = longer(this.#pause);
      this.#timer = setTimeout(() => { this.#timer = null; this.#begin(); }, this.#pause);
    }
  }

  #hear(entry) {
    const { entries, isWhole } = this.value;
    if (entries.length && entry.seq <= entries.at(-1).seq) return;
    const kept = [...entries, withMoment(entry)].slice(-this.#most);
    this.set({ ...this.value, entries: kept, isWhole: isWhole && kept.length > entries.length });
    // What a console prints changes nothing about the node.
    if (entry.what.by !== "console") this.#soon();
  }

  #soon() {
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.refresh().catch((error) => {
        if (error.status === 404) this.set({ ...this.value, error });
        else complain(error);
      });
    }, this.#pause);
  }

  #forget() {
    clearTimeout(this.#timer);
    this.#timer = null;
  }
}

const withMoment = (entry) => ({ ...entry, moment: Date.parse(entry.at) });
