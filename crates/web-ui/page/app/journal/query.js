// SPDX-License-Identifier: Apache-2.0
// The filters of the journal page, and the request parameters they stand for.

import { EVENT } from "../generated.js";

/** Events caused by users; the default. */
const USER_EVENTS = [
  EVENT.REQUESTED,
  EVENT.CHANGED,
  EVENT.ENROLLED,
  EVENT.REMOVED,
  EVENT.MAINTENANCE,
];

/** @type {[string, string][]} */
export const KIND_OPTIONS = [
  ["", "User actions"],
  ["all", "All events"],
  [EVENT.REQUESTED, "Provision and power requests"],
  [EVENT.CHANGED, "Changed fields"],
  [`${EVENT.ENROLLED},${EVENT.REMOVED}`, "Enrolled, removed"],
  [EVENT.STATE_CHANGED, "State changes"],
  [EVENT.ACTION_FAILED, "Failures"],
  [EVENT.POWER, "Power"],
  [EVENT.MAINTENANCE, "Maintenance"],
  [`${EVENT.ACTION_DONE},${EVENT.ACTION_FAILED}`, "Steps and actions"],
  [EVENT.BMC_CALLS, "BMC calls"],
  [EVENT.WAITING, "Waits"],
  [EVENT.NETWORK_ACTIVITY, "DHCP, TFTP, HTTP, console"],
  [`${EVENT.AGENT_CALL},${EVENT.NOTE}`, "Agent and inspection"],
];

/** @type {[string, string][]} */
export const TIME_OPTIONS = [
  ["", "Any time"],
  ["3600", "Last hour"],
  ["86400", "Last day"],
  ["604800", "Last week"],
  ["own", "Custom range…"],
];

const TEXT_FILTERS = ["text", "actor", "node", "trace"];

/**
 * The parameters of a journal request, from the query of the address. Relative times count back from
 * `now`; invalid times are ignored.
 * @param {URLSearchParams} query
 * @param {number} now
 * @returns {Record<string, string>}
 */
export function journalParameters(query, now) {
  /** @type {Record<string, string>} */
  const parameters = {};
  for (const name of TEXT_FILTERS) {
    const value = query.get(name)?.trim();
    if (value) parameters[name] = value;
  }
  const kind = query.get("kind") || USER_EVENTS.join(",");
  if (kind !== "all") parameters.kind = kind;
  const span = query.get("span") ?? "";
  if (Number(span) > 0) {
    parameters.from = new Date(now - Number(span) * 1000).toISOString();
  } else if (span === "own") {
    for (const name of ["from", "to"]) {
      const timestamp = Date.parse(query.get(name) ?? "");
      if (!Number.isNaN(timestamp)) parameters[name] = new Date(timestamp).toISOString();
    }
  }
  return parameters;
}
