// SPDX-License-Identifier: Apache-2.0
// What users can request for machines: provision verbs, power, maintenance; with the texts of their
// buttons and confirmations.

import { nodePath, put, remove } from "./api.js";

/** @type {(target: Verb) => ActionDefinition["send"]} */
const provision = (target) => (node, body) =>
  put(nodePath(node, "/states/provision"), { target, ...body });
/** @type {(target: string) => ActionDefinition["send"]} */
const power = (target) => (node) => put(nodePath(node, "/states/power"), { target });

/** @type {ActionDefinition[]} */
export const ACTIONS = [
  {
    id: "manage",
    verb: "manage",
    label: "Manage",
    description: "Checks the access to the BMC and makes the machine manageable.",
    send: provision("manage"),
  },
  {
    id: "inspect",
    verb: "inspect",
    label: "Inspect",
    description: "Collects the hardware inventory. The machine may be rebooted.",
    send: provision("inspect"),
  },
  {
    id: "provide",
    verb: "provide",
    label: "Provide",
    description: "Cleans the machine and makes it available for deployment.",
    erasesData: true,
    send: provision("provide"),
  },
  {
    id: "deploy",
    verb: "active",
    label: "Deploy…",
    title: "Deploy",
    description: "Writes the image to the disk and boots it.",
    erasesData: true,
    form: "deploy",
    send: provision("active"),
  },
  {
    id: "rebuild",
    verb: "rebuild",
    label: "Rebuild…",
    title: "Rebuild",
    description: "Deploys again over the existing instance.",
    erasesData: true,
    form: "deploy",
    send: provision("rebuild"),
  },
  {
    id: "adopt",
    verb: "adopt",
    label: "Adopt",
    description: "Takes over a running machine without changing it.",
    send: provision("adopt"),
  },
  {
    id: "rescue",
    verb: "rescue",
    label: "Rescue…",
    title: "Rescue",
    description: "Boots the rescue system on the instance's machine.",
    form: "rescue",
    send: provision("rescue"),
  },
  {
    id: "unrescue",
    verb: "unrescue",
    label: "Leave rescue",
    description: "Boots the instance again.",
    send: provision("unrescue"),
  },
  {
    id: "unhold",
    verb: "unhold",
    label: "Release hold",
    description: "Ends the hold; the job continues with its next step.",
    send: provision("unhold"),
  },
  {
    id: "abort",
    verb: "abort",
    label: "Abort",
    description: "Stops the current job.",
    isDisruptive: true,
    send: provision("abort"),
  },
  {
    id: "undeploy",
    verb: "deleted",
    label: "Undeploy",
    description: "Tears the instance down and cleans the machine.",
    erasesData: true,
    send: provision("deleted"),
  },
  {
    id: "power-on",
    label: "Power on",
    isPower: true,
    description: "Powers the machine on.",
    send: power("power on"),
  },
  {
    id: "power-off",
    label: "Power off",
    isPower: true,
    isDisruptive: true,
    description: "Cuts the power at once, without a shutdown of the operating system.",
    send: power("power off"),
  },
  {
    id: "soft-off",
    label: "Shut down",
    isPower: true,
    isDisruptive: true,
    description: "Requests a shutdown of the operating system.",
    send: power("soft power off"),
  },
  {
    id: "reboot",
    label: "Reboot",
    isPower: true,
    isDisruptive: true,
    description: "Powers the machine off and on again.",
    send: power("rebooting"),
  },
  {
    id: "maintenance-on",
    label: "Set maintenance…",
    title: "Set maintenance",
    description: "Suspends jobs and power control for the machine.",
    form: "maintenance",
    send: (node, body) => put(nodePath(node, "/maintenance"), body ?? {}),
  },
  {
    id: "maintenance-off",
    label: "End maintenance",
    description: "Resumes jobs and power control for the machine.",
    send: (node) => remove(nodePath(node, "/maintenance")),
  },
];

/**
 * Returns the action with this id, which must exist.
 * @param {string} id
 */
export function actionById(id) {
  const found = ACTIONS.find((action) => action.id === id);
  if (!found) throw new Error(`no action ${id}`);
  return found;
}

/**
 * The policy rule that an action needs.
 * @param {ActionDefinition} action
 */
export function ruleOf({ id, isPower }) {
  if (isPower) return "baremetal:node:set_power_state";
  if (id === "maintenance-on") return "baremetal:node:set_maintenance";
  if (id === "maintenance-off") return "baremetal:node:clear_maintenance";
  return "baremetal:node:set_provision_state";
}

/**
 * The headline of an action's confirmation.
 * @param {ActionDefinition} action
 */
export const titleOf = (action) => action.title ?? action.label;

/**
 * Whether an action needs a warning colour.
 * @param {ActionDefinition} action
 */
export const isDangerous = (action) => !!(action.isDisruptive || action.erasesData);
