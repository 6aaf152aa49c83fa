// SPDX-License-Identifier: Apache-2.0
// The dimensions by which machines are grouped and filtered.

import { faultLabel } from "../errors.js";
import { isBusy, isFailed, stateLabel, stateOrder } from "../states.js";
import { compareNames } from "./rows.js";

/** The value of rows without one. Not a valid name, because names are trimmed and not a hyphen. */
export const NONE = "-";

/** @type {(field: keyof FleetRow) => (row: FleetRow) => string} */
const field = (name) => (row) => String(row[name] || NONE);

/** @type {Dimension[]} */
export const DIMENSIONS = [
  { id: "rack", label: "Rack", valueOf: field("rack"), none: "no rack" },
  {
    id: "state",
    label: "State",
    valueOf: (row) => row.provision_state,
    order: (a, b) => compareNames(stateOrder(a), stateOrder(b)),
    isState: true,
    labelOf: stateLabel,
  },
  { id: "owner", label: "Owner", valueOf: field("owner"), none: "no owner" },
  { id: "class", label: "Resource class", valueOf: field("resource_class"), none: "no class" },
  { id: "fault", label: "Fault", valueOf: field("fault"), none: "no fault", labelOf: faultLabel },
  {
    id: "conductor",
    label: "Conductor group",
    valueOf: field("conductor_group"),
    none: "default group",
  },
  {
    id: "power",
    label: "Power",
    valueOf: (row) => (row.power_state ?? NONE).replace("power ", ""),
    none: "unknown",
  },
  {
    id: "maintenance",
    label: "Maintenance",
    valueOf: (row) => (row.maintenance ? "in maintenance" : NONE),
    none: "not in maintenance",
  },
  { id: "doing", label: "Activity", valueOf: activityOf, none: "idle" },
  { id: "driver", label: "Driver", valueOf: field("driver") },
];

export const GROUPINGS = ["rack", "state", "owner", "class", "fault", "conductor"];

/** @param {string} id */
export const dimension = (id) => DIMENSIONS.find((candidate) => candidate.id === id);

/**
 * The label of a dimension's value.
 * @param {Dimension} one
 * @param {string} value
 */
export const labelOf = (one, value) =>
  value === NONE ? (one.none ?? "none") : (one.labelOf?.(value) ?? value);

/** @param {FleetRow} row */
function activityOf(row) {
  if (isFailed(row.provision_state)) return "failed";
  if (row.wait_reason) return "waiting";
  return isBusy(row.provision_state) || row.target_power_state ? "working" : NONE;
}

/**
 * The order of values: the dimension's own, with `NONE` last.
 * @param {Dimension} one
 * @returns {(a: [string, unknown], b: [string, unknown]) => number}
 */
const byValue =
  ({ order = compareNames }) =>
  ([a], [b]) =>
    Number(a === NONE) - Number(b === NONE) || order(a, b);

/**
 * Counts the rows of each value, in the order of the dimension.
 * @param {Dimension} one
 * @param {FleetRow[]} rows
 * @returns {[string, number][]}
 */
export function countValues(one, rows) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const row of rows) {
    const value = one.valueOf(row);
    counts.set(value, (counts.get(value) ?? 0) + 1);
  }
  return [...counts].sort(byValue(one));
}

/**
 * Groups rows by a dimension; an unknown dimension gives one group without a name.
 * @param {string} id
 * @param {FleetRow[]} rows
 * @returns {RowGroup[]}
 */
export function groupRows(id, rows) {
  const one = dimension(id);
  if (!one) return [{ value: "", name: "", rows }];
  /** @type {Map<string, FleetRow[]>} */
  const groups = new Map();
  for (const row of rows) {
    const value = one.valueOf(row);
    const group = groups.get(value);
    if (group) group.push(row);
    else groups.set(value, [row]);
  }
  return [...groups]
    .sort(byValue(one))
    .map(([value, members]) => ({ value, name: labelOf(one, value), rows: members }));
}
