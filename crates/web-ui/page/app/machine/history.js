// SPDX-License-Identifier: Apache-2.0
// Ironic's history of the node: errors and state changes.

import { html } from "../../vendor/preact-htm.js";
import { get, nodePath } from "../api.js";
import { FetchResult, useFetch } from "../fetching.js";
import { date, duration } from "../times.js";
import { Panel, Table } from "./panel.js";

const QUERY = "/history?detail=true&sort_dir=desc&sort_key=created_at&limit=200";

/** @param {{ value: MachineView }} props */
export function History({ value: { node } }) {
  const entries = useFetch(
    () => get(nodePath(node.uuid, QUERY)),
    [node.uuid, node.provision_updated_at],
  );
  return html`<${Panel} title="History" icon="clock" flush><${FetchResult} result=${entries}>${({
    history,
  }) =>
    history.length === 0
      ? html`<div class="empty"><p>No entries yet.</p></div>`
      : html`<${Table} label="History" rows=${history} keyOf=${(entry) => entry.uuid} columns=${COLUMNS} />`}<//><//>`;
}

const COLUMNS = [
  [
    "Time",
    (entry) => html`<span class="nowrap number">${date(Date.parse(entry.created_at))}</span>`,
  ],
  [
    "Event",
    (entry) =>
      html`<span class=${entry.severity === "ERROR" ? "bad-text" : ""}>${entry.event}</span>`,
  ],
  ["State", (entry) => entry.state ?? ""],
  ["Duration", (entry) => historyDuration(entry.duration_seconds), "right number nowrap"],
  ["User", (entry) => entry.user ?? ""],
  ["Conductor", (entry) => entry.conductor ?? ""],
];

/**
 * Ironic's history has whole seconds, rounded down.
 * @param {number | null} seconds
 */
export function historyDuration(seconds) {
  if (seconds === null) return "";
  return seconds === 0 ? "< 1 s" : duration(seconds * 1000).replace(".0", "");
}
