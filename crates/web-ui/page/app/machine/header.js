// SPDX-License-Identifier: Apache-2.0
// Who the machine is, what it is doing, why it waits and until when, what went wrong, what can be done.

import { html } from "../../vendor/preact-htm.js";
import { Farness } from "../durations.js";
import { Icon } from "../icons.js";
import { href } from "../route.js";
import { State, isBusy, isFailed } from "../states.js";
import { countdown, date, duration, useSeconds } from "../times.js";
import { waitWords } from "../waits.js";
import { Actions } from "./actions.js";
import { currentStep, jobBegan } from "./timeline/entries.js";

export function Header({ machine, value }) {
  const { node, row } = value;
  useSeconds();
  return html`<header class="machine-head">
    <div class="machine-title">
      <a class="button plain square" href=${href("fleet")} aria-label="Back to the fleet"><${Icon} name="left" /></a>
      <div class="grow">
        <h1>${node.name ?? node.uuid}</h1>
        <p class="quiet facts">${facts(node, row).map((fact) => html`<span key=${fact}>${fact}</span>`)}</p>
      </div>
      <${Actions} machine=${machine} value=${value} />
    </div>
    <div class="standing">
      <${Doing} value=${value} />
      <${PowerCard} node=${node} />
      <${Place} node=${node} row=${row} />
    </div>
    <${Troubles} node=${node} />
  </header>`;
}

function facts(node, row) {
  const { vendor, cpus, memory_mb: memory } = node.properties;
  const bmc = node.driver_info.redfish_address ?? node.driver_info.ipmi_address;
  return [vendor, cpus && `${cpus} CPUs`, memory && `${Math.round(memory / 1024)} GiB`, node.resource_class,
    row?.rack && (/^rack/i.test(row.rack) ? row.rack : `rack ${row.rack}`),
    node.owner && `owner ${node.owner}`, `${node.driver}${bmc ? ` at ${String(bmc).replace(/^https?:\/\//,
      "")}` : ""}`].filter(Boolean);
}

function Doing({ value: { node, row, entries } }) {
  const { provision_state: state, target_provision_state: target } = node;
  const since = node.provision_updated_at && Date.parse(node.provision_updated_at);
  const step = isBusy(state) ? currentStep(entries, node) : null;
  const job = isBusy(state) ? jobBegan(entries) : null;
  const [wait, then] = row?.why ? waitWords(row.why) : [];
  return html`<section class="card doing" aria-label="What it is doing">
    <div class="big" data-provision-state=${state}><${State} state=${state} target=${target} /></div>
    ${since && html`<p class="quiet" title=${date(since)}>for ${duration(Math.max(1000,
      Math.floor((Date.now() - since) / 1000) * 1000)).replace(".0", "")}</p>`}
    ${step && html`<p>${step}</p>`}
    ${job && html`<${Farness} ifKnown begins=${job.state} goneMs=${Math.max(0, Date.now() - job.moment)} />`}
    ${wait && html`<p class="waiting"><${Icon} name="clock" /><span>
      ${wait}${row.until ? html`: <strong class="number" data-countdown>${countdown(row.until)}</strong> left` : ""}</span></p>
      <p class="faint">${then}</p>`}
    ${!wait && !step && !isBusy(state) && html`<p class="faint">
      ${RESTING[state] ?? (isFailed(state) ? "Stopped. Ask again, or see the timeline." : "")}</p>`}
  </section>`;
}

const RESTING = {
  enroll: "Known, and not yet looked at. “Manage” checks its BMC.",
  manageable: "Under management. It can be inspected, cleaned, or made available.",
  available: "Clean and ready to be deployed.",
  active: "Deployed. Ferrite keeps an eye on its power.",
  rescue: "Runs the rescue system.",
  error: "Tearing down failed.",
};

function PowerCard({ node }) {
  const target = node.target_power_state;
  const on = node.power_state === "power on";
  return html`<section class="card" aria-label="Power"><h2 class="minor">Power</h2>
    <div class="big"><span class="lamp ${on ? "on" : ""}">${(node.power_state ?? "unknown").replace("power ", "")}</span>
      ${target && html`<span class="faint"> → ${target}</span>`}</div>
    <p class="quiet">${[node.boot_mode, node.secure_boot === true && "secure boot",
      node.health && `health ${node.health}`].filter(Boolean).join(" · ")}</p>
  </section>`;
}

function Place({ node, row }) {
  const image = node.instance_info.image_source;
  return html`<section class="card" aria-label="Instance"><h2 class="minor">Instance</h2>
    <div class="big cut">${node.instance_name ?? node.instance_info.display_name ?? (image ? String(image).split("/").at(-1) : html`<span class="faint">none</span>`)}</div>
    <p class="quiet cut">${image ?? (row?.owner ? `owner ${row.owner}` : "")}</p>
  </section>`;
}

/** Faults, maintenance, errors, protections: whatever somebody should know before anything else. */
function Troubles({ node }) {
  return html`
    ${node.fault && html`<div class="notice bad" role="alert"><${Icon} name="warning" /><span>
      <strong>Fault: ${node.fault}.</strong> ${FAULTS[node.fault] ?? ""}</span></div>`}
    ${node.maintenance && html`<div class="notice warn"><${Icon} name="wrench" /><span>
      <strong>In maintenance.</strong> ${node.maintenance_reason ?? "No reason was given."}</span></div>`}
    ${node.last_error && html`<div class="notice bad" data-last-error><${Icon} name="warning" /><span>${node.last_error}</span>
      </div>`}
    ${node.protected && html`<div class="notice"><${Icon} name="lock" /><span>
      <strong>Protected</strong> from being undeployed and rebuilt. ${node.protected_reason ?? ""}</span></div>`}
    ${node.retired && html`<div class="notice"><${Icon} name="warning" /><span>
      <strong>Retired.</strong> ${node.retired_reason ?? ""}</span></div>`}`;
}

const FAULTS = {
  "power failure": "Its BMC does not answer. It is asked again by itself, and the fault ends when it answers: look at its network, its address and its password.",
  "clean failure": "A clean step failed. See why in the timeline, then end maintenance and “Manage” it.",
  "rescue abort failure": "Cleaning up after an aborted rescue failed.",
  "service failure": "A service step failed. See why in the timeline.",
};
