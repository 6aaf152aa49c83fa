// SPDX-License-Identifier: Apache-2.0
// Ironic's history of the machine: what went wrong, and when jobs began and ended.

import { html } from "../../vendor/preact-htm.js";
import { get, nodePath } from "../api.js";
import { Answer, useAnswer } from "../loading.js";
import { date, duration } from "../times.js";
import { Panel, Table } from "./panel.js";

export function History({ value: { node } }) {
  const answer = useAnswer(() => get(nodePath(node.uuid, "/history?detail=true&sort_dir=desc&sort_key=created_at&limit=200")),
    [node.uuid, node.provision_updated_at]);
  return html`<${Panel} title="History" icon="clock" flush><${Answer} of=${answer}>${({ history }) => (history.length === 0
    ? html`<div class="empty"><p>Nothing yet.</p></div>`
    : html`<${Table} label="History" rows=${history} keyOf=${(line) => line.uuid} columns=${[
      ["When", (line) => html`<span class="nowrap number">${date(Date.parse(line.created_at))}</span>`],
        ["What", (line) => html`<span class=${line.severity === "ERROR" ? "bad-text" : ""}>${line.event}</span>`],
      ["State", (line) => line.state ?? ""], ["Took",
        (line) => (line.duration_seconds === null ? "" : duration(line.duration_seconds * 1000)), "right number nowrap"],
        ["User", (line) => line.user ?? ""], ["Conductor", (line) => line.conductor ?? ""]]} />`)}<//><//>`;
}
