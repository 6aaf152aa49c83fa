// SPDX-License-Identifier: Apache-2.0
// The topology as a list: each switch with its ports.

import { html, useState } from "../../vendor/preact-htm.js";
import { Table } from "../machine/panel.js";
import { href } from "../route.js";
import { count } from "../sizes.js";
import { ago } from "../times.js";
import { describeLink, isProblem, linkStyle } from "./model.js";

/** Up to this many switches are expanded. */
const MAX_EXPANDED = 4;
const MAX_SWITCHES = 300;
const ROWS = 200,
  MORE_ROWS = 1000;

/**
 * `marked` are the ports to show, null for all.
 * @param {object} props
 * @param {import("./model.js").TopologySwitch[]} props.switches
 * @param {Set<import("./model.js").SwitchPort> | null} props.marked
 */
export function TopologyList({ switches, marked }) {
  const shown = switches
    .map((one) => ({
      one,
      ports: marked ? one.ports.filter((port) => marked.has(port)) : one.ports,
    }))
    .filter(({ ports }) => ports.length);
  const isExpanded = shown.length <= MAX_EXPANDED || !!marked;
  return html`<div class="topology-list">${shown
    .slice(0, MAX_SWITCHES)
    .map(
      ({ one, ports }) =>
        html`<${SwitchPanel} key=${one.id} one=${one} ports=${ports} isExpanded=${isExpanded} />`,
    )}</div>`;
}

/**
 * @param {object} props
 * @param {import("./model.js").TopologySwitch} props.one
 * @param {import("./model.js").SwitchPort[]} props.ports
 * @param {boolean} props.isExpanded
 */
function SwitchPanel({ one, ports, isExpanded }) {
  const [open, setOpen] = useState(isExpanded);
  const [limit, setLimit] = useState(ROWS);
  const problems = ports.filter(isProblem).length;
  const facts = [
    count(ports.length, "port"),
    one.description,
    one.management_addresses.join(", "),
  ].filter(Boolean);
  return html`<details class="panel switch" open=${open} onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary><strong>${one.label}</strong> <span class="quiet">${facts.join(" · ")}</span> ${problems > 0 && html`<span class="badge bad">${count(problems, "problem")}</span>`}</summary>
    ${open && html`<${Table} label=${`Ports of ${one.label}`} rows=${ports.slice(0, limit)} keyOf=${(port) => `${port.id} ${port.mac}`} columns=${COLUMNS} />`}
    ${
      open &&
      ports.length > limit &&
      html`<p class="pad"><button class="button" onClick=${() => setLimit(limit + MORE_ROWS)}>
      Show more of ${ports.length.toLocaleString("en")}</button></p>`
    }</details>`;
}

const COLUMNS = [
  ["Port", (port) => html`<strong>${port.id}</strong>`, "nowrap"],
  [
    "Machine",
    (port) =>
      html`<a href=${href(`machines/${port.machine.label}`, { tab: "network" })}>${port.machine.label}</a>`,
    "nowrap",
  ],
  ["NIC", (port) => html`${port.interface ?? ""} <code class="quiet">${port.mac}</code>`, "nowrap"],
  [
    "Link",
    (port) => {
      const { badge, label } = linkStyle(port.state);
      return html`<span class="badge ${badge}">${label}</span>`;
    },
  ],
  ["Details", (port) => (isProblem(port) || port.state === "configured" ? describeLink(port) : "")],
  [
    "Last LLDP",
    (port) =>
      port.observed_at
        ? html`<span class="quiet nowrap">${ago(Date.parse(port.observed_at))}</span>`
        : "",
  ],
];
