// SPDX-License-Identifier: Apache-2.0
// The status of a machine during an action on many machines.

import { errorCause } from "../errors.js";
import { isBusy, isFailed, stateLabel } from "../states.js";
import { waitText } from "../wait_reasons.js";

/** @typedef {{ at: number, error?: undefined } | { error: Error, at?: undefined }} RequestResult */
/** @typedef {{ status: "queued" | "running" | "done" | "failed", text: string }} ActionStatus */

/** @type {Record<string, (row: FleetRow) => string | false>} */
const REASONS = {
  "power-on": (row) => row.power_state === "power on" && "already on",
  "power-off": (row) => row.power_state === "power off" && "already off",
  "soft-off": (row) => row.power_state === "power off" && "already off",
  "maintenance-on": (row) => row.maintenance && "already in maintenance",
  "maintenance-off": (row) => !row.maintenance && "not in maintenance",
};

/**
 * Splits machines for power and maintenance actions, which the server does not explain: a machine
 * that already is as requested is rejected.
 * @param {Pick<ActionDefinition, "id">} action
 * @param {FleetRow[]} rows
 */
export function checkWithoutServer({ id }, rows) {
  const reasonOf = REASONS[id] ?? (() => false);
  /** @type {FleetRow[]} */
  const possible = [];
  /** @type {Map<string, FleetRow[]>} */
  const reasons = new Map();
  for (const row of rows) {
    const reason = reasonOf(row);
    if (!reason) possible.push(row);
    else reasons.set(reason, [...(reasons.get(reason) ?? []), row]);
  }
  return {
    possible,
    rejected: [...reasons].map(([reason, members]) => ({ reason, rows: members })),
  };
}

/**
 * The status of a machine, from the result of its request and its current row.
 * @param {ActionDefinition} action
 * @param {FleetRow} row
 * @param {RequestResult | undefined} result
 * @param {number} asOf the age of the row, as in `FleetState`
 * @returns {ActionStatus}
 */
export function actionStatus(action, row, result, asOf) {
  if (result === undefined) return { status: "queued", text: "queued" };
  if (result.error) return { status: "failed", text: result.error.message };
  // A row that is older than the response shows the state before the action.
  if (result.at >= asOf) return { status: "running", text: "accepted" };
  if (action.isPower) return powerStatus(action, row);
  if (!action.verb) return { status: "done", text: row.maintenance ? "in maintenance" : "" };
  if (isFailed(row.provision_state))
    return { status: "failed", text: row.error ? errorCause(row.error) : row.provision_state };
  if (isBusy(row.provision_state)) return { status: "running", text: waitText(row) };
  return { status: "done", text: stateLabel(row.provision_state) };
}

/**
 * @param {ActionDefinition} action
 * @param {FleetRow} row
 * @returns {ActionStatus}
 */
function powerStatus(action, row) {
  if (row.target_power_state) return { status: "running", text: `→ ${row.target_power_state}` };
  const isOff = action.id === "power-off" || action.id === "soft-off";
  const target = isOff ? "power off" : "power on";
  if (row.power_state === target) return { status: "done", text: target };
  const text = row.error ? errorCause(row.error) : `still in state ${row.power_state}`;
  return { status: "failed", text };
}
