// SPDX-License-Identifier: Apache-2.0
// Rows of the fleet: decoding, ordering and searching them.

import { stateLabel } from "../states.js";

/**
 * Decodes the rows of a response. Timestamps become numbers, because they are compared every second.
 * @param {Pick<FleetResponse, "fields" | "nodes">} response
 * @returns {FleetRow[]}
 */
export function decodeRows({ fields, nodes }) {
  return nodes.map((values) => {
    /** @type {any} */
    const row = {};
    for (let index = 0; index < fields.length; index++) row[fields[index]] = values[index];
    row.wait_until = row.wait_until ? Date.parse(row.wait_until) : null;
    row.next_action_at = row.next_action_at ? Date.parse(row.next_action_at) : null;
    row.since = row.since ? Date.parse(row.since) : null;
    row.label = row.name ?? row.uuid;
    row.searchText = [
      row.label,
      row.uuid,
      row.provision_state,
      stateLabel(row.provision_state),
      row.owner,
      row.resource_class,
      row.rack,
    ]
      .filter(Boolean)
      .join("\n")
      .toLowerCase();
    return row;
  });
}

const COLLATOR = new Intl.Collator("en", { numeric: true });

/**
 * Compares names so that `r2` comes before `r10`.
 * @param {string} a
 * @param {string} b
 */
export const compareNames = (a, b) => COLLATOR.compare(a, b);

const PLAIN_NAME = /^[a-z0-9._-]*$/;

/**
 * Compares rows by label.
 * @param {FleetRow} a
 * @param {FleetRow} b
 */
export function compareRows(a, b) {
  // Ten times faster than the collator, and equivalent for plain names of equal length.
  const isPlain =
    a.label.length === b.label.length && PLAIN_NAME.test(a.label) && PLAIN_NAME.test(b.label);
  if (isPlain) return a.label < b.label ? -1 : a.label > b.label ? 1 : 0;
  return compareNames(a.label, b.label);
}

/**
 * Returns at most `limit` rows: those whose name begins with the text, then those that contain it.
 * @param {FleetRow[]} rows
 * @param {string} needle in lower case
 * @param {number} limit
 */
export function searchRows(rows, needle, limit) {
  const prefixed = [],
    containing = [];
  for (const row of rows) {
    if (row.label.toLowerCase().startsWith(needle)) prefixed.push(row);
    else if (row.searchText.includes(needle)) containing.push(row);
    if (prefixed.length >= limit) break;
  }
  return [...prefixed, ...containing].slice(0, limit);
}
