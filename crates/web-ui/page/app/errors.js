// SPDX-License-Identifier: Apache-2.0
// Texts for faults and errors of nodes.

/**
 * The label of each fault, and what to do about it.
 * @type {Record<Fault, [string, string]>}
 */
const FAULT_TEXTS = {
  "power failure": [
    "BMC unreachable",
    "The BMC is polled and the fault ends when it responds. Check its network, address and password.",
  ],
  "clean failure": [
    "Cleaning failed",
    "The timeline has the failed step. Fix the cause, end maintenance and “Manage” the machine.",
  ],
  "rescue abort failure": [
    "Rescue abort failed",
    "Cleaning up after an aborted rescue failed; the timeline has the cause.",
  ],
  "service failure": ["Service failed", "The timeline has the failed step."],
};

/**
 * Returns the label of a fault, and what to do about it.
 * @param {string} fault
 * @returns {[string, string]}
 */
export const describeFault = (fault) =>
  FAULT_TEXTS[/** @type {Fault} */ (fault)] ?? [`Fault: ${fault}`, ""];

/** @param {string} fault */
export const faultLabel = (fault) => FAULT_TEXTS[/** @type {Fault} */ (fault)]?.[0] ?? fault;

/**
 * The cause of an error, without the parts that the view shows anyway: the name of the node, the failed
 * call, and when maintenance ends.
 * @param {string} text
 */
export const errorCause = (text) =>
  text
    .replace(/^.*?\bnode \S+: (?=\S)/, "")
    .replace(/^failed to .*?: (?=\S)/i, "")
    .replace(/ \((?:maintenance ends|the node comes back) [^()]*\)$/, "");
