// SPDX-License-Identifier: Apache-2.0
// By what machines are grouped and filtered: the table that both are made from.

import { familyOf, isBusy, stateOrder } from "../states.js";
import { compare } from "./model.js";

/** Stands for "has none". It cannot be a name, since names have no spaces around them. */
export const NONE = "-";

const text = (field) => (row) => row[field] || NONE;

/** `of` gives a machine's value; `order` compares values; `none` says what to call "has none". */
export const DIMENSIONS = [
  { id: "rack", label: "Rack", of: text("rack"), none: "no rack" },
  { id: "state", label: "State", of: (row) => row.provision_state,
    order: (one, other) => compare(stateOrder(one), stateOrder(other)), dot: true },
  { id: "owner", label: "Owner", of: text("owner"), none: "no owner" },
  { id: "class", label: "Resource class", of: text("resource_class"), none: "no class" },
  { id: "fault", label: "Fault", of: text("fault"), none: "no fault" },
  { id: "conductor", label: "Conductor group", of: text("conductor_group"), none: "default group" },
  { id: "power", label: "Power", of: (row) => (row.power_state ?? NONE).replace("power ", ""), none: "unknown" },
  { id: "maintenance", label: "Maintenance", of: (row) => (row.maintenance ? "in maintenance" : NONE), none: "not in maintenance" },
  { id: "doing", label: "Doing", of: doing, none: "at rest" },
  { id: "driver", label: "Driver", of: text("driver") },
];

export const GROUPINGS = ["rack", "state", "owner", "class", "fault", "conductor"];

export const dimension = (id) => DIMENSIONS.find((one) => one.id === id);

/** What a value of a dimension is called. */
export const nameOf = (one, value) => (value === NONE ? one.none ?? "none" : value);

function doing(row) {
  if (familyOf(row.provision_state) === "failed") return "failed";
  if (row.why) return "waiting";
  return isBusy(row.provision_state) || row.target_power_state ? "working" : NONE;
}

/** How many of `rows` have each value, in the dimension's order, "has none" last. */
export function tally(one, rows) {
  const counts = new Map();
  for (const row of rows) {
    const value = one.of(row);
    counts.set(value, (counts.get(value) ?? 0) + 1);
  }
  const order = one.order ?? compare;
  return [...counts].sort(([a], [b]) => (a === NONE) - (b === NONE) || order(a, b));
}

/** The rows as groups: `[{value, name, rows}]`; one group without a name when nothing groups them. */
export function grouped(id, rows) {
  const one = dimension(id);
  if (!one) return [{ value: "", name: "", rows }];
  const groups = new Map();
  for (const row of rows) {
    const value = one.of(row);
    const group = groups.get(value);
    if (group) group.push(row); else groups.set(value, [row]);
  }
  const order = one.order ?? compare;
  return [...groups]
    .sort(([a], [b]) => (a === NONE) - (b === NONE) || order(a, b))
    .map(([value, members]) => ({ value, name: nameOf(one, value), rows: members }));
}
