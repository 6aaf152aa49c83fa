// SPDX-License-Identifier: Apache-2.0
// The machine's ports, and the switch port that each of them heard.

import { html } from "../../vendor/preact-htm.js";
import { get, nodePath } from "../api.js";
import { Answer, useAnswer } from "../loading.js";
import { ago } from "../times.js";
import { Panel, Table } from "./panel.js";

const HEARD = { heard: ["good", "heard"], moved: ["warn", "moved"], missing: ["bad", "missing"],
  configured: ["", "not listened yet"] };

export function Network({ value: { node } }) {
  const answer = useAnswer(async () => {
    const [{ ports }, { switches }] = await Promise.all([
      get(nodePath(node.uuid, "/ports?detail=true")), get(`/v1/ferrite/topology?node=${node.uuid}`)]);
    const neighbours = switches.flatMap((one) => one.ports.map((port) => ({ ...port, switch: one })));
    return { ports, neighbours };
  }, [node.uuid, node.updated_at]);
  return html`<${Answer} of=${answer}>${({ ports, neighbours }) => {
    const beside = (port) => neighbours.find((one) => one.port_uuid === port.uuid || one.mac === port.address);
    return html`<${Panel} title="Ports" icon="network" flush>
      ${ports.length === 0 ? html`<div class="empty"><p>No ports. Inspection makes them, or <code>baremetal port create</code>.</p>
        </div>` : html`<${Table} label="Ports" rows=${ports} keyOf=${(port) => port.uuid} columns=${[
        ["MAC address", (port) => html`<code><strong>${port.address}</strong></code>`],
        ["Card", (port) => beside(port)?.interface ?? port.name ?? ""],
        ["Boots from it", (port) => (port.pxe_enabled ? "yes" : html`<span class="faint">no</span>`)],
        ["Switch", (port) => beside(port)?.switch.name ?? port.local_link_connection.switch_info ?? port.local_link_connection.switch_id ?? html`<span class="faint">–</span>`],
        ["Switch port", (port) => beside(port)?.id ?? port.local_link_connection.port_id ?? ""],
        ["Link", (port) => { const [kind, words] = HEARD[beside(port)?.state] ?? ["", ""]; return words && html`<span
          class="badge ${kind}">${words}</span>`; }],
        ["Heard", (port) => { const at = beside(port)?.listened_at; return at ? html`<span class="quiet">${ago(Date.parse(at))}
          </span>` : ""; }],
        ["Physical network", (port) => port.physical_network ?? ""]]} />`}<//>
      ${neighbours.filter((one) => !ports.some((port) => beside(port) === one)).length > 0 && html`<${Panel}
        title="Neighbours of cards without a port" flush>
        <${Table} label="Neighbours" rows=${neighbours.filter((one) => !ports.some((port) => beside(port) === one))} columns=${[
          ["Card", (one) => one.interface], ["MAC address", (one) => html`<code>${one.mac}</code>`],
            ["Switch", (one) => one.switch.name ?? one.switch.id], ["Switch port", (one) => one.id]]} /><//>`}`;
  }}<//>`;
}
