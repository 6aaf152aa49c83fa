// SPDX-License-Identifier: Apache-2.0
// Texts for waits: what the machine waits for, what happens next, and when.

import { WAIT_REASONS } from "./generated.js";
import { countdown, timeoutText } from "./times.js";

/**
 * The texts of a wait reason; undefined for one of a newer server.
 * @param {string} reason
 */
const textsOf = (reason) =>
  Object.hasOwn(WAIT_REASONS, reason)
    ? WAIT_REASONS[/** @type {WaitReason} */ (reason)]
    : undefined;

/**
 * Returns what the machine waits for, and what happens next.
 * @param {string} reason
 * @returns {[string, string]}
 */
export function describeWait(reason) {
  const texts = textsOf(reason);
  return texts ? [texts.title, texts.explanation] : [`Waiting for: ${reason}`, ""];
}

/**
 * What happens at `next_action_at`, to be followed by a time.
 * @param {string} reason
 */
export const nextAction = (reason) => textsOf(reason)?.nextAction ?? "next action";

/**
 * When the next action starts and when the wait fails: `next attempt in 0:07, timeout in 9:41`. Empty
 * if the node waits for an event only, and in maintenance, when nothing is done.
 * @param {Pick<FleetRow, "wait_reason" | "wait_until" | "next_action_at" | "maintenance">} row
 */
export function waitTimes(row, now = Date.now()) {
  const { wait_reason: reason, wait_until: until, next_action_at: next, maintenance } = row;
  if (!reason || maintenance) return "";
  const left = next && countdown(next, now);
  return [left && `${nextAction(reason)} in ${left}`, until && timeoutText(until, now)]
    .filter(Boolean)
    .join(", ");
}

/**
 * What a node waits for, with its times; empty if it does not wait.
 * @param {Parameters<typeof waitTimes>[0]} row
 */
export function waitText(row, now = Date.now()) {
  if (!row.wait_reason) return "";
  return [describeWait(row.wait_reason)[0], waitTimes(row, now)].filter(Boolean).join(" · ");
}
