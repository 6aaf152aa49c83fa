// SPDX-License-Identifier: Apache-2.0
// Sorts the rows of the table by a column.

import { stateOrder } from "../states.js";
import { compareNames } from "./rows.js";

/**
 * The sort key of each column: a number or a text in all rows.
 * @type {Record<string, (row: FleetRow) => string | number>}
 */
const SORT_KEYS = {
  name: (row) => row.label,
  state: (row) => stateOrder(row.provision_state),
  // Errors first, then waiting machines.
  doing: (row) => (row.error ? 0 : row.wait_reason ? 1 : 2),
  power: (row) => row.power_state ?? "",
  class: (row) => row.resource_class ?? "",
  owner: (row) => row.owner ?? "",
  rack: (row) => row.rack ?? "",
  // The latest first.
  since: (row) => -(row.since ?? 0),
};

/**
 * Sorts the rows within each group; rows arrive sorted by name, which is the default.
 * @param {RowGroup[]} groups
 * @param {string} column
 * @param {boolean} descending
 */
export function sortGroups(groups, column, descending) {
  const keyOf = SORT_KEYS[column];
  if (!keyOf || (column === "name" && !descending)) return groups;
  const sign = descending ? -1 : 1;
  return groups.map((group) => ({
    ...group,
    rows: [...group.rows].sort((one, other) => {
      const [a, b] = [keyOf(one), keyOf(other)];
      const order =
        typeof a === "number" && typeof b === "number" ? a - b : compareNames(String(a), String(b));
      return sign * order;
    }),
  }));
}
