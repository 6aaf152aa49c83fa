// SPDX-License-Identifier: Apache-2.0
// The plan that `explain` returns, as a readable list of states, actions and waits.

import { html } from "../vendor/preact-htm.js";
import { Dot, stateLabel } from "./states.js";

/** @param {{ plan: string[] }} props */
export function Plan({ plan }) {
  return html`<ol class="plan" aria-label="Planned steps" tabindex="0">
    ${plan.map((line, index) => html`<${PlanLine} key=${index} line=${line} />`)}</ol>`;
}

/** @param {{ line: string }} props */
function PlanLine({ line }) {
  const parsed = parsePlanLine(line);
  if (parsed.kind === "state")
    return html`<li class="state"><${Dot} state=${parsed.text} /> ${stateLabel(parsed.text)}</li>`;
  if (parsed.kind === "step")
    return html`<li class="act">${parsed.text} <code>${parsed.step}</code></li>`;
  if (parsed.kind === "other") return html`<li class="act quiet">${parsed.text}</li>`;
  return html`<li class=${parsed.kind}>${parsed.text}</li>`;
}

/**
 * Parses a line of a plan, such as `run deploy step deploy.write_image`.
 * @param {string} line
 * @returns {{ kind: "state" | "step" | "wait" | "fails" | "other", text: string, step?: string }}
 */
export function parsePlanLine(line) {
  const state = /^(.+) -> (.+)$/.exec(line);
  if (state) return { kind: "state", text: state[2] };
  const step = /^run \w+ step (.+)$/.exec(line);
  if (step) return { kind: "step", text: describeStep(step[1]), step: step[1] };
  if (line.startsWith("wait: ")) return { kind: "wait", text: `waits: ${line.slice(6)}` };
  if (line.startsWith("fails: ")) return { kind: "fails", text: line };
  return { kind: "other", text: line };
}

/** @type {Record<string, string>} */
const STEPS = {
  deploy: "boots the agent",
  write_image: "writes the image",
  prepare_instance_boot: "prepares the boot of the instance",
  tear_down_agent: "stops the agent",
  switch_to_tenant_network: "switches to the tenant network",
  boot_instance: "boots the instance",
  erase_devices_metadata: "erases the metadata of the disks",
  erase_devices: "erases the disks",
  apply_configuration: "applies the configuration",
  factory_reset: "resets to factory settings",
  delete_configuration: "deletes the RAID configuration",
  create_configuration: "creates the RAID configuration",
  update: "updates firmware",
  verify_bmc_clock: "checks the BMC's clock",
};

/** @param {string} name a step such as `deploy.write_image (priority 80)` */
function describeStep(name) {
  const short = name.slice(name.indexOf(".") + 1).split(/[ (]/)[0];
  return STEPS[short] ?? short.replaceAll("_", " ");
}
