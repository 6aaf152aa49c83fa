// SPDX-License-Identifier: Apache-2.0
// What `explain` tells, as a list one can read: states, actions, waits.

import { html } from "../vendor/preact-htm.js";
import { Dot } from "./states.js";

export function Plan({ plan }) {
  return html`<ol class="plan" aria-label="What will happen, in order" tabindex="0">
    ${plan.map((line, index) => html`<${Line} key=${index} line=${line} />`)}</ol>`;
}

function Line({ line }) {
  const state = /^(.+) -> (.+)$/.exec(line);
  if (state) return html`<li class="state"><${Dot} state=${state[2]} /> ${state[2]}</li>`;
  const step = /^run (\w+) step (.+)$/.exec(line);
  if (step) return html`<li class="act">${stepWords(step[2])} <code>${step[2]}</code></li>`;
  if (line.startsWith("wait: ")) return html`<li class="wait">waits: ${line.slice(6)}</li>`;
  if (line.startsWith("fails: ")) return html`<li class="fails">${line}</li>`;
  return html`<li class="act quiet">${line}</li>`;
}

const STEPS = {
  deploy: "boots the agent", write_image: "writes the image", prepare_instance_boot: "prepares the boot of the instance",
  tear_down_agent: "ends the agent", switch_to_tenant_network: "switches to the tenant network",
    boot_instance: "boots the instance",
  erase_devices_metadata: "erases the disks' metadata", erase_devices: "erases the disks",
    apply_configuration: "applies the configuration",
  factory_reset: "resets to factory settings", delete_configuration: "deletes the RAID configuration",
    create_configuration: "creates the RAID configuration",
  update: "updates firmware", verify_bmc_clock: "checks the BMC's clock",
};

function stepWords(name) {
  const short = name.slice(name.indexOf(".") + 1).split(/[ (]/)[0];
  return STEPS[short] ?? short.replaceAll("_", " ");
}
