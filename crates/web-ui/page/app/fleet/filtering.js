// SPDX-License-Identifier: Apache-2.0
// Filters rows by the values of dimensions and by text.

import { DIMENSIONS } from "./dimensions.js";

/**
 * Reads the filters from the query of the address. Values are percent-encoded, because they can
 * contain commas.
 * @param {URLSearchParams} query
 * @param {(part: string) => string} decode
 * @returns {Filters}
 */
export function readFilters(query, decode) {
  const selected = new Map();
  for (const { id } of DIMENSIONS) {
    const values = query.get(id);
    if (values) selected.set(id, new Set(values.split(",").map(decode)));
  }
  return { text: query.get("q") ?? "", selected };
}

/**
 * Returns the rows that pass all filters, or all but that of the dimension `except`.
 * @param {FleetRow[]} rows
 * @param {Filters} filters
 * @param {string} [except]
 */
export function filterRows(rows, { text, selected }, except) {
  const tests = DIMENSIONS.flatMap(({ id, valueOf }) => {
    const values = id === except ? undefined : selected.get(id);
    return values ? [(/** @type {FleetRow} */ row) => values.has(valueOf(row))] : [];
  });
  const words = text.trim().toLowerCase().split(/\s+/).filter(Boolean);
  tests.push(
    ...words.map((word) => rangeMatcher(word) ?? ((row) => row.searchText.includes(word))),
  );
  return tests.length ? rows.filter((row) => tests.every((test) => test(row))) : rows;
}

/**
 * A test for a range of names such as `r01-u[01-12]`; null if the word is not a range.
 * @param {string} word
 * @returns {((row: FleetRow) => boolean) | null}
 */
function rangeMatcher(word) {
  const found = /^(.*)\[(\d+)-(\d+)\](.*)$/.exec(word);
  if (!found) return null;
  const [, before, first, last, after] = found;
  return (row) => {
    const name = row.label.toLowerCase();
    if (!name.startsWith(before) || !name.endsWith(after)) return false;
    const middle = name.slice(before.length, name.length - after.length);
    return (
      /^\d+$/.test(middle) && Number(middle) >= Number(first) && Number(middle) <= Number(last)
    );
  };
}
