// SPDX-License-Identifier: Apache-2.0
// The cluster page: the processes of the service, the nodes that each manages, and the job queues.

import { html, useEffect } from "../../vendor/preact-htm.js";
import { get } from "../api.js";
import { ErrorNotice, FetchResult, useFetch } from "../fetching.js";
import { Panel, Table } from "../machine/panel.js";
import { PageFrame, RefreshButton } from "../page_parts.js";
import { count } from "../sizes.js";
import { ago, date, duration } from "../times.js";

const REFRESH_MS = 5000;
/** The badge of each state of a process. */
const STATES = { online: "good", dead: "bad", offline: "" };

export function ClusterPage() {
  const cluster = useFetch(() => get("/v1/ferrite/cluster"), []);
  // From the last response on, so that a slow server gets one request at a time.
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.hidden) return;
      clearInterval(timer);
      cluster.reload();
    }, REFRESH_MS);
    return () => clearInterval(timer);
  }, [cluster.data, cluster.error]);
  return html`<${PageFrame}
    title="Cluster"
    note="processes that share the database"
    tools=${html`<${RefreshButton} onClick=${cluster.reload} />`}
  >
    <${FetchResult} result=${cluster}
      >${(status) =>
        html` ${problems(status).map((message) => html`<${ErrorNotice} key=${message} message=${message} />`)}
          <${Panel} title="Processes" icon="fleet" flush>
            <${Table}
              label="Processes"
              rows=${status.replicas}
              keyOf=${({ hostname }) => hostname}
              columns=${processColumns(status)}
          /><//>
          <${Panel} title="Job queues" icon="list" flush>
            <${Table}
              label="Job queues"
              rows=${status.queues}
              keyOf=${({ name }) => name}
              columns=${QUEUE_COLUMNS}
          /><//>`}<//
    ><//
  >`;
}

/**
 * What an operator should act on, as sentences.
 * @param {any} status
 * @returns {string[]}
 */
export function problems({ replicas, unmanaged_nodes: unmanaged, responder }) {
  const found = replicas
    .filter(({ state }) => state === "dead")
    .map(
      ({ hostname, renewed_at: at }) =>
        `${hostname} does not run any more: it last renewed its session ${ago(Date.parse(at))}.`,
    );
  if (unmanaged > 0)
    found.push(
      `${count(unmanaged, "machine")} cannot be managed: no running process has the driver and the conductor group.`,
    );
  if (responder.clock_beyond_tolerance)
    found.push(
      `The clock of ${responder.hostname} differs from that of the database server by ${duration(Math.abs(responder.clock_ahead_seconds) * 1000)}.`,
    );
  return found;
}

const processColumns = ({ responder }) => [
  [
    "Process",
    ({ hostname }) =>
      html`<strong>${hostname}</strong
        >${hostname === responder.hostname && html` <span class="quiet">sends this page</span>`}`,
  ],
  ["State", ({ state }) => html`<span class="badge ${STATES[state] ?? ""}">${state}</span>`],
  ["Version", ({ version }) => version ?? ""],
  ["Group", ({ conductor_group: group }) => group || "default"],
  ["Machines", ({ nodes }) => nodes.toLocaleString("en"), "number"],
  ["Working on", ({ working }) => working.toLocaleString("en"), "number"],
  ["Late", ({ late }) => late.toLocaleString("en"), "number"],
  ["Lag", ({ lag_seconds: lag }) => (lag > 0 ? duration(lag * 1000) : ""), "nowrap"],
  [
    "Last renewal",
    ({ renewed_at: at }) => html`<span title=${date(Date.parse(at))}>${ago(Date.parse(at))}</span>`,
    "nowrap",
  ],
];

const QUEUE_COLUMNS = [
  ["Queue", ({ name }) => name],
  ["Running", ({ running }) => running.toLocaleString("en"), "number"],
  ["At most", ({ limit }) => limit.toLocaleString("en"), "number"],
  ["Waiting", ({ waiting }) => waiting.toLocaleString("en"), "number"],
];
