// SPDX-License-Identifier: Apache-2.0
// The status of a machine in a deployment, from its row of the fleet.

import { isFailed } from "../states.js";

/** A row can be older than the deployment request for this long. */
const SETTLING_MS = 4000;

/**
 * The status of a machine whose deployment was requested at `startedAt`. `row` is absent if the
 * machine was removed, or if the fleet is not loaded (`isLoaded`).
 * @param {Pick<FleetRow, "provision_state" | "since" | "error"> | undefined} row
 * @param {number} startedAt
 * @param {number} now
 * @param {boolean} isLoaded
 * @returns {{ status: "running" | "done" | "failed", tookMs?: number | null }}
 */
export function deployStatus(row, startedAt, now, isLoaded) {
  if (!row) return { status: isLoaded ? "failed" : "running" };
  const hasChanged = row.since !== null && row.since > startedAt;
  if (row.provision_state === "active")
    return { status: "done", tookMs: hasChanged && row.since ? row.since - startedAt : null };
  const isSettled = hasChanged || now - startedAt >= SETTLING_MS;
  const isBack = row.error !== null && row.provision_state === "available";
  if (isSettled && (isFailed(row.provision_state) || isBack)) return { status: "failed" };
  return { status: "running" };
}
