// SPDX-License-Identifier: Apache-2.0
// One machine, kept as the server has it: its node, its row of the fleet (which says why it waits), and
// its timeline, to which events are added as they come.

import { ferritePath, get, nodePath } from "../api.js";
import { decode } from "../fleet/model.js";
import { follow } from "../live.js";
import { Subject } from "../subject.js";
import { complain } from "../toasts.js";

const AT_FIRST = 600;
const ASK_AFTER_MS = 250;

/** `{node, row, verbs, entries, isWhole, error}`; `node` is null until it is there. */
export class Machine extends Subject {
  #ident;
  #stop = null;
  #timer = null;
  #ended = false;

  constructor(ident) {
    super({ node: null, row: null, verbs: [], entries: [], isWhole: false, error: null });
    this.#ident = ident;
    this.#begin();
  }

  end() {
    this.#ended = true;
    this.#stop?.();
    clearTimeout(this.#timer);
  }

  /** Asks for the node again, after something was changed. */
  async refresh() {
    const ident = this.value.node?.uuid ?? this.#ident;
    const [node, answer] = await Promise.all([get(nodePath(ident)), get(`/v1/ferrite/fleet?node=${encodeURIComponent(ident)}`)]);
    const [row] = decode(answer);
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
    this.set({ ...this.value, entries: [...entries, ...this.value.entries.filter((entry) => entry.seq > last)], isWhole: true });
  }

  async #begin() {
    try {
      await this.refresh();
      const { uuid } = this.value.node;
      const { timeline } = await get(ferritePath(uuid, `/timeline?last=${AT_FIRST}`));
      if (this.#ended) return;
      this.set({ ...this.value, entries: timeline.map(withMoment), isWhole: timeline.length < AT_FIRST });
      this.#stop = follow({ after: timeline.at(-1)?.seq ?? 0, node: uuid, hear: (_, text) => this.#hear(JSON.parse(text)) });
    } catch (error) {
      this.set({ ...this.value, error });
    }
  }

  #hear(entry) {
    const { entries } = this.value;
    if (entries.length && entry.seq <= entries.at(-1).seq) return;
    this.set({ ...this.value, entries: [...entries, withMoment(entry)] });
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.refresh().catch((error) => {
        if (error.status === 404) this.set({ ...this.value, error });
        else complain(error);
      });
    }, ASK_AFTER_MS);
  }
}

const withMoment = (entry) => ({ ...entry, moment: Date.parse(entry.at) });
