// SPDX-License-Identifier: Apache-2.0
// Asking the server for something a view shows, with the waiting and the refusal shown in its place.

import { html, useCallback, useEffect, useState } from "../vendor/preact-htm.js";
import { Icon } from "./icons.js";

/** `{data, error, again}` of a promise made by `load`, made anew when `keys` change. */
export function useAnswer(load, keys) {
  const [state, setState] = useState({ data: undefined, error: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let isCurrent = true;
    load().then((data) => isCurrent && setState({ data, error: null }),
      (error) => isCurrent && setState((before) => ({ ...before, error })));
    return () => { isCurrent = false; };
  }, [...keys, turn]);
  const again = useCallback(() => setTurn((count) => count + 1), []);
  return { ...state, again };
}

/** Shows `children(data)` once it is there. */
export function Answer({ of: { data, error }, children }) {
  if (error) return html`<div class="notice bad"><${Icon} name="warning" /><span>${error.message}</span></div>`;
  if (data === undefined) return html`<div class="loading" role="status" aria-label="Loading"></div>`;
  return children(data);
}
