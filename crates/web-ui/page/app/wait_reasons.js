// SPDX-License-Identifier: Apache-2.0
// Texts for wait reasons: what the machine waits for, and what happens next.

import { timeoutText } from "./times.js";

/** @type {Record<WaitReason, [string, string]>} */
const WAIT_TEXTS = {
  "agent heartbeat": [
    "Waiting for the agent's first heartbeat",
    "The machine boots the ramdisk. At the timeout the job tries another boot method or fails.",
  ],
  "agent step": [
    "The agent runs a step",
    "The agent reports when the step ends; it is also polled.",
  ],
  "inspection data": [
    "Waiting for inspection data",
    "The machine boots the inspection ramdisk, which sends the inventory. At the timeout inspection fails.",
  ],
  "wait step": ["Running a wait step", "The job continues by itself."],
  hold: ["Held by an operator", "“Release hold” or “Abort” ends the hold."],
  "BMC answer": ["BMC unreachable", "The BMC is polled until the timeout."],
  "agent answer": ["Agent unreachable", "The agent is polled until the timeout."],
};

/**
 * Returns what the machine waits for, and what happens next.
 * @param {string} reason
 * @returns {[string, string]}
 */
export const describeWait = (reason) =>
  WAIT_TEXTS[/** @type {WaitReason} */ (reason)] ?? [`Waiting for: ${reason}`, ""];

/**
 * What a node waits for, with its timeout; empty if it does not wait.
 * @param {Pick<FleetRow, "why" | "until">} row
 */
export function waitText({ why, until }) {
  if (!why) return "";
  return [describeWait(why)[0], until && timeoutText(until)].filter(Boolean).join(" · ");
}
