// SPDX-License-Identifier: Apache-2.0
// A value that tells those who watch it when it changes, and the hook by which views watch.

import { useLayoutEffect, useReducer } from "../vendor/preact-htm.js";

/** A value with watchers. */
export class Subject {
  #watchers = new Set();

  constructor(value) { this.value = value; }

  set(value) {
    this.value = value;
    this.tell();
  }

  /** Tells the watchers that something inside the value changed. */
  tell() {
    for (const watcher of [...this.#watchers]) watcher(this.value);
  }

  /** Calls `watcher` at every change until the returned function is called. */
  watch(watcher) {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }
}

/** The value of a subject; the view is drawn anew when it changes. */
export function useSubject(subject) {
  const [, redraw] = useReducer((count) => count + 1, 0);
  const drawn = subject.value;
  // Before anything else can run: effects of the other kind come after the next paint, and what changed
  // until then would be missed.
  useLayoutEffect(() => {
    if (subject.value !== drawn) redraw();
    return subject.watch(redraw);
  }, [subject]);
  return drawn;
}
