// SPDX-License-Identifier: Apache-2.0
// BIOS settings, RAID, firmware and runbooks. All of them run as clean steps of a manageable machine or
// as service steps of an active one, after a preview.

import { html } from "../../../vendor/preact-htm.js";
import { Icon } from "../../icons.js";
import { stateLabel } from "../../states.js";
import { Bios } from "./bios.js";
import { Firmware } from "./firmware.js";
import { Raid } from "./raid.js";
import { Runbooks } from "./runbooks.js";

/**
 * The verb that runs steps in a state, and the request field for them; null if none does.
 * @param {string} state
 */
export function stepFlow(state) {
  if (state === "manageable" || state === "clean failed")
    return { target: "clean", stepsField: "clean_steps", label: "cleaning" };
  if (state === "active" || state === "service failed")
    return { target: "service", stepsField: "service_steps", label: "service" };
  return null;
}

/** @param {{ machine: MachineModel, value: MachineView }} props */
export function Setup({ machine, value: { node, verbs } }) {
  const flow = stepFlow(node.provision_state);
  const properties = { machine, node, flow };
  return html`
    ${!flow && html`<${StateNotice} state=${node.provision_state} canManage=${verbs.includes("manage")} />`}
    <${Bios} ...${properties} />
    <${Raid} ...${properties} />
    <${Firmware} ...${properties} />
    <${Runbooks} ...${properties} />`;
}

/** @param {{ state: string, canManage: boolean }} props */
function StateNotice({ state, canManage }) {
  return html`<div class="notice" style=${{ marginBottom: "16px" }}><${Icon} name="lock" />
      <span>Settings are changed by clean or service steps, which need a <strong>manageable</strong> or <strong>active</strong> machine.
      Its state is ${stateLabel(state)}${canManage ? "; “Manage” makes it manageable" : ""}.</span></div>`;
}
