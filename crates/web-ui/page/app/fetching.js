// SPDX-License-Identifier: Apache-2.0
// Loads what a view shows, and renders the loading and error states in its place.

import { html, useCallback, useEffect, useState } from "../vendor/preact-htm.js";
import { Icon } from "./icons.js";

/**
 * Calls `load` at first, when `keys` change and on `reload()`. Data stay until newer data arrive.
 * @template T
 * @param {() => Promise<T>} load
 * @param {unknown[]} keys
 * @returns {{ data: T | undefined, error: Error | null, reload: () => void }}
 */
export function useFetch(load, keys) {
  const [state, setState] = useState(
    /** @type {{ data: T | undefined, error: Error | null }} */ ({ data: undefined, error: null }),
  );
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    let isCurrent = true;
    load().then(
      (data) => isCurrent && setState({ data, error: null }),
      (error) => isCurrent && setState((before) => ({ ...before, error })),
    );
    return () => {
      isCurrent = false;
    };
  }, [...keys, attempt]);
  const reload = useCallback(() => setAttempt((count) => count + 1), []);
  return { ...state, reload };
}

/**
 * Renders `children(data)` of a `useFetch` result once the data are there.
 * @param {{ result: any, children: any }} props
 */
export function FetchResult({ result: { data, error }, children }) {
  if (error) return html`<${ErrorNotice} message=${error.message} />`;
  if (data === undefined)
    return html`<div class="loading" role="status" aria-label="Loading"></div>`;
  return children(data);
}

/** @param {{ message: string }} props */
export function ErrorNotice({ message }) {
  return html`<div class="notice bad" role="alert"><${Icon} name="warning" /><span>${message}</span></div>`;
}
