// SPDX-License-Identifier: Apache-2.0
// The live log of the ramdisk, and the collected log archives.

import { html } from "../../vendor/preact-htm.js";
import { ferritePath, get } from "../api.js";
import { FetchResult, useFetch } from "../fetching.js";
import { Icon } from "../icons.js";
import { bytes } from "../sizes.js";
import { ago, date } from "../times.js";
import { LiveLog } from "./live_log.js";
import { Panel, Table } from "./panel.js";

/** @param {{ value: MachineView }} props */
export function Logs({ value: { node } }) {
  const archives = useFetch(
    () => get(ferritePath(node.uuid, "/logs")),
    [node.uuid, node.provision_state],
  );
  const columns = [
    [
      "Time",
      (log) => {
        const timestamp = Date.parse(log.created_at);
        return html`<span title=${date(timestamp)}>${ago(timestamp)}</span>`;
      },
    ],
    ["Job", (log) => log.kind],
    ["Reason", (log) => log.reason],
    ["Size", (log) => bytes(log.size), "right number"],
    [
      "Archive",
      (log) => html`<a class="button" download href=${ferritePath(node.uuid, `/logs/${log.id}`)}>
        <${Icon} name="down" /> Download</a>`,
    ],
  ];
  return html`<${LiveLog} node=${node} />
    <${Panel} title="Ramdisk logs" icon="list" flush><${FetchResult} result=${archives}>${({
      logs,
    }) =>
      logs.length === 0
        ? html`<div class="empty"><h2>No logs</h2>
      <p>Ramdisk logs are collected when a job fails, or always with <code>agent_logs.collect</code>.</p></div>`
        : html`<${Table} label="Logs" rows=${logs} keyOf=${(log) => log.id} columns=${columns} />`}<//><//>`;
}
