// SPDX-License-Identifier: Apache-2.0
// The machine's ports, and the switch port that LLDP reported for each.

import { html } from "../../vendor/preact-htm.js";
import { get, nodePath } from "../api.js";
import { caller, matchesRule } from "../caller.js";
import { FetchResult, useFetch } from "../fetching.js";
import { ago } from "../times.js";
import { linkStyle } from "../topology/model.js";
import { Panel, Table } from "./panel.js";

/** @param {{ value: MachineView }} props */
export function Network({ value: { node } }) {
  const network = useFetch(async () => {
    const [{ ports }, { switches }] = await Promise.all([
      get(nodePath(node.uuid, "/ports?detail=true")),
      matchesRule(caller.value, "ferrite:topology:get")
        ? get(`/v1/ferrite/topology?node=${node.uuid}`)
        : { switches: [] },
    ]);
    const links = switches.flatMap((one) => one.ports.map((port) => ({ ...port, switch: one })));
    return { ports, links };
  }, [node.uuid, node.updated_at]);
  return html`<${FetchResult} result=${network}>${({ ports, links }) => {
    const linkOf = (port) =>
      links.find((link) => link.port_uuid === port.uuid || link.mac === port.address);
    const known = new Set(ports.map(linkOf));
    const others = links.filter((link) => !known.has(link));
    return html`<${Panel} title="Ports" icon="network" flush>
      ${
        ports.length === 0
          ? html`<div class="empty"><p>No ports. Inspection creates them, or <code>baremetal port create</code>.</p></div>`
          : html`<${Table} label="Ports" rows=${ports} keyOf=${(port) => port.uuid} columns=${portColumns(linkOf)} />`
      }<//>
      ${
        others.length > 0 &&
        html`<${Panel} title="Neighbours of NICs without a port" flush>
        <${Table} label="Neighbours" rows=${others} columns=${NEIGHBOUR_COLUMNS} /><//>`
      }`;
  }}<//>`;
}

/** @param {(port: any) => any} linkOf */
const portColumns = (linkOf) => [
  ["MAC address", (port) => html`<code><strong>${port.address}</strong></code>`],
  ["NIC", (port) => linkOf(port)?.interface ?? port.name ?? ""],
  ["PXE", (port) => (port.pxe_enabled ? "yes" : html`<span class="faint">no</span>`)],
  [
    "Switch",
    (port) => {
      const { switch_info: info, switch_id: id } = port.local_link_connection;
      return linkOf(port)?.switch.name ?? info ?? id ?? html`<span class="faint">–</span>`;
    },
  ],
  ["Switch port", (port) => linkOf(port)?.id ?? port.local_link_connection.port_id ?? ""],
  [
    "Link",
    (port) => {
      const link = linkOf(port);
      if (!link) return "";
      const { badge, label } = linkStyle(link.state);
      return html`<span class="badge ${badge}">${label}</span>`;
    },
  ],
  [
    "Last LLDP",
    (port) => {
      const at = linkOf(port)?.observed_at;
      return at ? html`<span class="quiet">${ago(Date.parse(at))}</span>` : "";
    },
  ],
  ["Physical network", (port) => port.physical_network ?? ""],
];

const NEIGHBOUR_COLUMNS = [
  ["NIC", (link) => link.interface],
  ["MAC address", (link) => html`<code>${link.mac}</code>`],
  ["Switch", (link) => link.switch.name ?? link.switch.id],
  ["Switch port", (link) => link.id],
];
