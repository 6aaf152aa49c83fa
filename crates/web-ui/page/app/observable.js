// SPDX-License-Identifier: Apache-2.0
// A value with change listeners, and the hook by which components subscribe to it.

import { useLayoutEffect, useReducer } from "../vendor/preact-htm.js";

/** @template T */
export class Observable {
  /** @type {Set<(value: T) => void>} */
  #listeners = new Set();

  /** @param {T} value */
  constructor(value) {
    this.value = value;
  }

  /** @param {T} value */
  set(value) {
    this.value = value;
    for (const listener of [...this.#listeners]) listener(this.value);
  }

  /**
   * Calls `listener` at every change until the returned function is called.
   * @param {(value: T) => void} listener
   */
  subscribe(listener) {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  }
}

/**
 * Returns the value of an observable and rerenders the component when it changes.
 * @template T
 * @param {Observable<T>} observable
 * @returns {T}
 */
export function useObservable(observable) {
  const [, rerender] = useReducer((count) => count + 1, 0);
  const rendered = observable.value;
  // A layout effect, because an ordinary effect runs after the next paint and would miss changes
  // that happen before it.
  useLayoutEffect(() => {
    if (observable.value !== rendered) rerender();
    return observable.subscribe(() => rerender());
  }, [observable]);
  return rendered;
}
