// SPDX-License-Identifier: Apache-2.0
// The logs that ramdisks left, to download.

import { html } from "../../vendor/preact-htm.js";
import { ferritePath, get } from "../api.js";
import { Icon } from "../icons.js";
import { Answer, useAnswer } from "../loading.js";
import { bytes } from "../sizes.js";
import { ago, date } from "../times.js";
import { LiveLog } from "./live_log.js";
import { Panel, Table } from "./panel.js";

export function Logs({ value: { node } }) {
  const answer = useAnswer(() => get(ferritePath(node.uuid, "/logs")), [node.uuid, node.provision_state]);
  return html`<${LiveLog} node=${node} />
    <${Panel} title="Logs of ramdisks" icon="list" flush><${Answer} of=${answer}>${({ logs }) => (logs.length === 0
    ? html`<div class="empty"><h2>No logs</h2>
      <p>The agent's logs are collected when a job fails, or always if the configuration says so (<code>agent_logs.collect</code>).</p></div>`
    : html`<${Table} label="Logs" rows=${logs} keyOf=${(log) => log.id} columns=${[
      ["When", (log) => html`<span title=${date(Date.parse(log.created_at))}>${ago(Date.parse(log.created_at))}</span>`],
        ["Of", (log) => log.kind], ["Why", (log) => log.why],
      ["Size", (log) => bytes(log.size), "right number"],
      ["Archive", (log) => html`<a class="button" download href=${ferritePath(node.uuid, `/logs/${log.id}`)}>
        <${Icon} name="down" /> Download</a>`]]} />`)}<//><//>`;
}
