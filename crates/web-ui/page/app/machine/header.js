// SPDX-License-Identifier: Apache-2.0
// The machine's identity, state, wait reason, errors and actions.

import { html } from "../../vendor/preact-htm.js";
import { describeFault, errorCause } from "../errors.js";
import { Icon } from "../icons.js";
import { JobProgress } from "../job_progress.js";
import { href } from "../route.js";
import { State, isBusy, isFailed } from "../states.js";
import { date, duration, useEverySecond } from "../times.js";
import { describeWait, waitTimes } from "../wait_reasons.js";
import { Actions } from "./actions.js";
import { QueuePosition } from "./queue_position.js";
import { currentJobStart, currentStep } from "./timeline/entries.js";

/** The fault of a node whose BMC does not respond. */
const BMC_FAULT = "power failure";

/** @param {{ machine: MachineModel, value: MachineView }} props */
export function Header({ machine, value }) {
  const { node, row } = value;
  useEverySecond();
  return html`<header class="machine-head">
    <div class="machine-title">
      <a class="button plain square" href=${href("fleet")} aria-label="Back to the fleet"><${Icon} name="left" /></a>
      <div class="grow">
        <h1>${node.name ?? node.uuid}</h1>
        <p class="quiet facts">${headerFacts(node, row).map((fact) => html`<span key=${fact}>${fact}</span>`)}</p>
      </div>
      <${Actions} machine=${machine} value=${value} />
    </div>
    <div class="status-tiles">
      <${StateTile} value=${value} />
      <${PowerTile} node=${node} />
      <${InstanceTile} node=${node} row=${row} />
    </div>
    <${Notices} node=${node} />
  </header>`;
}

/**
 * @param {NodeRecord} node
 * @param {FleetRow | null} row
 */
function headerFacts(node, row) {
  const { vendor, cpus, memory_mb: memory } = node.properties;
  const bmc = node.driver_info.redfish_address ?? node.driver_info.ipmi_address;
  const address = bmc ? ` at ${String(bmc).replace(/^https?:\/\//, "")}` : "";
  return [
    vendor,
    cpus && `${cpus} CPUs`,
    memory && `${Math.round(memory / 1024)} GiB`,
    node.resource_class,
    row?.rack && (/^rack/i.test(row.rack) ? row.rack : `rack ${row.rack}`),
    node.owner && `owner ${node.owner}`,
    `${node.driver}${address}`,
  ].filter(Boolean);
}

/** @param {{ value: MachineView }} props */
function StateTile({ value: { node, row, entries } }) {
  const { provision_state: state, target_provision_state: target } = node;
  const since = node.provision_updated_at && Date.parse(node.provision_updated_at);
  const busy = isBusy(state);
  const step = busy ? currentStep(entries, node) : null;
  const job = busy ? currentJobStart(entries) : null;
  const [wait, explanation] = row?.wait_reason ? describeWait(row.wait_reason) : [];
  const times = row && waitTimes(row);
  const hint =
    STATE_HINTS[state] ?? (isFailed(state) ? "The job stopped; the timeline has the cause." : "");
  return html`<section class="tile state-tile" aria-label="State">
    <div class="big" data-provision-state=${state}><${State} state=${state} target=${target} /></div>
    ${since && html`<p class="quiet" title=${date(since)}>for ${elapsedText(Date.now() - since)}</p>`}
    ${step && html`<p>${step}</p>`}
    ${job && html`<${JobProgress} onlyIfKnown begins=${job.state} elapsedMs=${Math.max(0, Date.now() - job.timestamp)} />`}
    ${
      wait &&
      html`<p class="waiting"><${Icon} name="clock" /><span>
      ${wait}${times ? html`: <strong class="number" data-countdown>${times}</strong>` : ""}
      ${row?.wait_reason === "job queue" && html`<${QueuePosition} uuid=${node.uuid} />`}</span></p>
      <p class="faint">${explanation}</p>`
    }
    ${!wait && !step && !busy && html`<p class="faint">${hint}</p>`}
  </section>`;
}

/**
 * A duration in whole seconds, at least one.
 * @param {number} ms
 */
const elapsedText = (ms) =>
  duration(Math.max(1000, Math.floor(ms / 1000) * 1000)).replace(".0", "");

/**
 * What a stable state means and which action is next.
 * @type {Partial<Record<ProvisionState, string>>}
 */
const STATE_HINTS = {
  enroll: "Enrolled; the BMC is not verified. “Manage” checks the access to it.",
  manageable: "It can be inspected, cleaned, or made available with “Provide”.",
  available: "Clean and ready to be deployed.",
  active: "Deployed. The power state is monitored.",
  rescue: "Runs the rescue system.",
  error: "Tearing down the instance failed.",
};

/** @param {{ node: NodeRecord }} props */
function PowerTile({ node }) {
  const isOn = node.power_state === "power on";
  const target = node.target_power_state;
  // The last health of an unreachable BMC is outdated.
  const health =
    node.fault === BMC_FAULT ? "health unknown" : node.health && `health ${node.health}`;
  const facts = [node.boot_mode, node.secure_boot === true && "secure boot", health];
  return html`<section class="tile" aria-label="Power"><h2 class="minor">Power</h2>
    <div class="big"><span class="lamp ${isOn ? "on" : ""}">${(node.power_state ?? "unknown").replace("power ", "")}</span>
      ${target && html`<span class="faint"> → ${target}</span>`}</div>
    <p class="quiet">${facts.filter(Boolean).join(" · ")}</p>
  </section>`;
}

/** @param {{ node: NodeRecord, row: FleetRow | null }} props */
function InstanceTile({ node, row }) {
  const image = node.instance_info.image_source;
  const name =
    node.instance_name ??
    node.instance_info.display_name ??
    (image && String(image).split("/").at(-1));
  return html`<section class="tile" aria-label="Instance"><h2 class="minor">Instance</h2>
    <div class="big cut">${name ?? html`<span class="faint">none</span>`}</div>
    <p class="quiet cut">${image ?? (row?.owner ? `owner ${row.owner}` : "")}</p>
  </section>`;
}

/**
 * One notice for a fault with its maintenance and its error; otherwise one for each.
 * @param {{ node: NodeRecord }} props
 */
function Notices({ node }) {
  const { fault, maintenance, maintenance_reason: reason, last_error: error } = node;
  const isReported = fault && error && error === reason;
  return html`
    ${fault && html`<${FaultNotice} fault=${fault} cause=${reason ?? error} />`}
    ${
      maintenance &&
      !fault &&
      html`<div class="notice warn"><${Icon} name="wrench" /><span>
      <strong>In maintenance.</strong> ${reason ?? "No reason given."}</span></div>`
    }
    ${
      error &&
      !isReported &&
      html`<div class="notice bad" data-last-error><${Icon} name="warning" /><span>${errorCause(error)}</span></div>`
    }
    ${
      node.protected &&
      html`<div class="notice"><${Icon} name="lock" /><span>
      <strong>Protected</strong> from undeploy and rebuild. ${node.protected_reason ?? ""}</span></div>`
    }
    ${
      node.retired &&
      html`<div class="notice"><${Icon} name="warning" /><span>
      <strong>Retired.</strong> ${node.retired_reason ?? ""}</span></div>`
    }`;
}

/** @param {{ fault: string, cause: string | null }} props */
function FaultNotice({ fault, cause }) {
  const [label, advice] = describeFault(fault);
  return html`<div class="notice bad" role="alert" data-fault=${fault}><${Icon} name="warning" /><span>
      <strong>${label}, in maintenance.</strong> ${cause && html`${sentence(errorCause(cause))} `}<span class="quiet">${advice}</span></span></div>`;
}

/** @param {string} text */
const sentence = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);
