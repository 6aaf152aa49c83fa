// SPDX-License-Identifier: Apache-2.0
// A search whose results are loaded page by page, for the journal and the audit log.
import { useEffect, useRef, useState } from "../vendor/preact-htm.js";
import { get } from "./api.js";

const PAGE_SIZE = 100;
const SEARCH_DELAY_MS = 250;

/**
 * @typedef {object} SearchResult
 * @property {any[]} entries
 * @property {any} next where the next page begins
 * @property {string | null} [reached] the timestamp up to which entries were searched
 * @property {Error | null} error
 */

/** @type {SearchResult} */
const NO_RESULT = { entries: [], next: null, reached: null, error: null };

/**
 * Searches whenever the filters change.
 * @param {URLSearchParams} query the filters
 * @param {{ path: string, marker: string, parameters: (query: URLSearchParams, now: number) => object }} search
 *   the endpoint, the name of its parameter for the next page, and its parameters for the filters
 */
export function usePagedSearch(query, { path, marker, parameters }) {
  const [result, setResult] = useState(NO_RESULT);
  const [busy, setBusy] = useState(true);
  const filters = String(query);
  const latest = useRef(filters);
  latest.current = filters;
  const load = async (start) => {
    setBusy(true);
    const values = new URLSearchParams({
      ...parameters(query, Date.now()),
      limit: String(PAGE_SIZE),
      ...(start ? { [marker]: String(start) } : {}),
    });
    const earlier = start ? result.entries : [];
    const next = await get(`${path}?${values}`).then(
      (page) => ({ ...page, entries: [...earlier, ...page.entries], error: null }),
      (error) => ({ ...(start ? result : NO_RESULT), error }),
    );
    if (latest.current !== filters) return;
    setResult(next);
    setBusy(false);
  };
  useEffect(() => {
    setBusy(true);
    const timer = setTimeout(() => load(null), SEARCH_DELAY_MS);
    return () => clearTimeout(timer);
  }, [filters]);
  return { ...result, busy, loadMore: () => load(result.next) };
}
