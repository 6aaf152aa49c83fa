// SPDX-License-Identifier: Apache-2.0
// BIOS settings, RAID and firmware as forms, and runbooks. What they lead to is steps of cleaning (of a manageable
// machine) or of service (of an active one); the plan is shown before anything happens.

import { html } from "../../../vendor/preact-htm.js";
import { Icon } from "../../icons.js";
import { Bios } from "./bios.js";
import { Firmware } from "./firmware.js";
import { Raid } from "./raid.js";
import { Runbooks } from "./runbooks.js";

/** Which verb runs steps on a machine in this state, and under which name it takes them. */
export function flowOf(state) {
  if (state === "manageable" || state === "clean failed") return { target: "clean", steps: "clean_steps", word: "cleaning" };
  if (state === "active" || state === "service failed") return { target: "service", steps: "service_steps", word: "service" };
  return null;
}

export function Setup({ machine, value }) {
  const flow = flowOf(value.node.provision_state);
  return html`
    ${!flow && html`<div class="notice" style=${{ marginBottom: "16px" }}><${Icon} name="lock" />
      <span>Settings are changed by steps of cleaning or service, so the machine must be <strong>manageable</strong> or <strong>active</strong>. It is ${value.node.provision_state}${value.verbs.includes("manage") ? ": “Manage” makes it manageable" : ""}.</span></div>`}
    <${Bios} machine=${machine} node=${value.node} flow=${flow} />
    <${Raid} machine=${machine} node=${value.node} flow=${flow} />
    <${Firmware} machine=${machine} node=${value.node} flow=${flow} />
    <${Runbooks} machine=${machine} node=${value.node} flow=${flow} />`;
}
