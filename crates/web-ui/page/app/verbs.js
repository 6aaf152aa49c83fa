// SPDX-License-Identifier: Apache-2.0
// What can be asked of machines: provision verbs, power, maintenance. Each with the words for its
// button and for its confirmation, and with the request that asks for it.

import { nodePath, put, remove } from "./api.js";

const provision = (target, extra = {}) => (node, given) =>
  put(nodePath(node, "/states/provision"), { target, ...extra, ...given });
const power = (target) => (node) => put(nodePath(node, "/states/power"), { target });

/**
 * `verb` is what `explain` is asked about; actions without one are always accepted or refused by the
 * request itself. `wipes` means that data on the machine is lost.
 */
export const ACTIONS = [
  { id: "manage", verb: "manage", label: "Manage", does: "Checks the BMC and takes the machine under management.",
    ask: provision("manage") },
  { id: "inspect", verb: "inspect", label: "Inspect", does: "Finds out what the machine is made of. The machine may be rebooted.",
    ask: provision("inspect") },
  { id: "provide", verb: "provide", label: "Provide", does: "Cleans the machine and makes it available for deployment.",
    wipes: true, ask: provision("provide") },
  { id: "deploy", verb: "active", label: "Deploy…", title: "Deploy", does: "Writes the image to the disk and starts it.",
    wipes: true, form: "deploy", ask: provision("active") },
  { id: "rebuild", verb: "rebuild", label: "Rebuild…", title: "Rebuild", does: "Deploys again over what is there.", wipes: true,
    form: "deploy", ask: provision("rebuild") },
  { id: "adopt", verb: "adopt", label: "Adopt", does: "Takes over a machine that already runs, without touching it.",
    ask: provision("adopt") },
  { id: "rescue", verb: "rescue", label: "Rescue…", title: "Rescue", does: "Boots the rescue system on the instance's machine.",
    form: "rescue", ask: provision("rescue") },
  { id: "unrescue", verb: "unrescue", label: "Leave rescue", does: "Boots the instance again.", ask: provision("unrescue") },
  { id: "unhold", verb: "unhold", label: "Go on", does: "Ends the hold: the job goes on with its next step.",
    ask: provision("unhold") },
  { id: "abort", verb: "abort", label: "Abort", does: "Stops what is going on.", grave: true, ask: provision("abort") },
  { id: "undeploy", verb: "deleted", label: "Undeploy", does: "Tears the instance down and cleans the machine.", wipes: true,
    ask: provision("deleted") },
  { id: "power-on", label: "Power on", power: true, does: "Switches the machine on.", ask: power("power on") },
  { id: "power-off", label: "Power off", power: true, grave: true,
    does: "Switches the machine off at once; its system is not asked.", ask: power("power off") },
  { id: "soft-off", label: "Shut down", power: true, grave: true, does: "Asks the operating system to shut down.",
    ask: power("soft power off") },
  { id: "reboot", label: "Reboot", power: true, grave: true, does: "Switches the machine off and on again.",
    ask: power("rebooting") },
  { id: "maintenance-on", label: "Set maintenance…", title: "Set maintenance",
    does: "Ferrite leaves the machine alone: no jobs, no power control.", form: "maintenance",
    ask: (node, given) => put(nodePath(node, "/maintenance"), given ?? {}) },
  { id: "maintenance-off", label: "End maintenance", does: "Ferrite looks after the machine again.",
    ask: (node) => remove(nodePath(node, "/maintenance")) },
];

export const action = (id) => ACTIONS.find((one) => one.id === id);

/** What an action is called at the head of its confirmation. */
export const titleOf = (one) => one.title ?? one.label;
