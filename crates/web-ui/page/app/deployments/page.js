// SPDX-License-Identifier: Apache-2.0
// The deployments page: lists, creates, extends and removes deployments.

import { html, useEffect, useState } from "../../vendor/preact-htm.js";
import { get, remove } from "../api.js";
import { caller, denial } from "../caller.js";
import { FetchResult, useFetch } from "../fetching.js";
import { FormDialog, RowButton } from "../form_dialog.js";
import { Icon } from "../icons.js";
import { Table } from "../machine/panel.js";
import { useObservable } from "../observable.js";
import { EmptyState, PageFrame, SearchField } from "../page_parts.js";
import { href, route, setQuery } from "../route.js";
import { Dot } from "../states.js";
import { date, useEverySecond } from "../times.js";
import { showMessage } from "../toasts.js";
import { NewDeploymentDialog } from "./create.js";
import { LeaseDialog } from "./lease.js";
import { DEPLOYMENT_STATES, imageName, leaseText, nameOf, stateMark } from "./model.js";

const ALL = "/v1/ferrite/deployments";
const REFRESH_MS = 5000;
const UPDATE = "ferrite:deployment:update";
const DELETE = "ferrite:deployment:delete";

export function DeploymentsPage() {
  const { query } = useObservable(route);
  const known = useObservable(caller);
  const state = query.get("state") ?? "";
  const deployments = useFetch(
    () => get(`${ALL}${state ? `?state=${encodeURIComponent(state)}` : ""}`),
    [state],
  );
  const [dialog, setDialog] = useState(
    /** @type {{ kind: "new" | "lease" | "delete", deployment: any } | null} */ (null),
  );
  const open = (kind, deployment) => () => setDialog({ kind, deployment });
  const close = () => setDialog(null);
  // A deployment without a machine has no journal, so there are no events to follow.
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) deployments.reload();
    }, REFRESH_MS);
    return () => clearInterval(timer);
  }, [deployments.reload]);
  useEverySecond();
  const needle = (query.get("q") ?? "").trim().toLowerCase();
  const rows = (deployments.data?.deployments ?? []).filter((deployment) =>
    JSON.stringify(deployment).toLowerCase().includes(needle),
  );
  const noCreate = denial(known, "ferrite:deployment:create");
  const columns = [...COLUMNS, ["Actions", (row) => actions(row), "right nowrap"]];
  const actions = (deployment) => {
    const name = nameOf(deployment);
    const isDeleting = deployment.state === "deleting";
    return html`<span class="row-actions">
      <${RowButton} label="Extend" name="Extend ${name}" onClick=${open("lease", deployment)}
        reason=${isDeleting ? "It is being removed." : rowDenial(deployment, UPDATE)} />
      <${RowButton} label="Delete" name="Delete ${name}" isDangerous onClick=${open("delete", deployment)}
        reason=${isDeleting ? "It is being removed." : rowDenial(deployment, DELETE)} /></span>`;
  };
  const note = deployments.data ? rows.length.toLocaleString("en") : "";
  return html`<${PageFrame} title="Deployments" class="deployments" note=${note} tools=${html`
      <${SearchField} value=${query.get("q") ?? ""} label="Search deployments" placeholder="name, project, machine…" />
      <select class="state-filter" aria-label="State" value=${state} onChange=${(event) => setQuery({ state: event.currentTarget.value })}>
        <option value="">All states</option>${DEPLOYMENT_STATES.map((name) => html`<option key=${name} value=${name} selected=${name === state}>${name}</option>`)}</select>
      <button class="button primary" disabled=${!!noCreate} title=${noCreate ?? undefined} onClick=${open("new", null)}>
        <${Icon} name="plus" /> New deployment</button>`}>
    <${FetchResult} result=${deployments}>${() =>
      rows.length === 0
        ? html`<${EmptyState} title=${needle || state ? "No matching deployments" : "No deployments yet"}>
          <p>A deployment is a request for a machine with an image on it, for a time.</p><//>`
        : html`<section class="panel" aria-label="Deployments"><${Table} label="Deployments" rows=${rows}
            keyOf=${(row) => row.uuid} columns=${columns} /></section>
          ${deployments.data?.next && html`<p class="quiet">There are more: select a state.</p>`}`}<//>
    ${dialog?.kind === "new" && html`<${NewDeploymentDialog} known=${known} onClose=${close} onCreated=${deployments.reload} />`}
    ${dialog?.kind === "lease" && html`<${LeaseDialog} deployment=${dialog.deployment} onClose=${close} onSaved=${deployments.reload} />`}
    ${dialog?.kind === "delete" && html`<${DeleteDialog} deployment=${dialog.deployment} onClose=${close} onDeleted=${deployments.reload} />`}<//>`;
}

/**
 * Why an action of a row is disabled; the server returns the rules that match for the deployment.
 * @param {any} deployment
 * @param {string} rule
 */
const rowDenial = ({ permissions }, rule) =>
  !permissions || permissions.includes(rule)
    ? null
    : `Not allowed: your roles do not match the policy rule ${rule} for this deployment.`;

const COLUMNS = [
  [
    "Name",
    (row) => html`<strong>${row.name ?? html`<code>${row.uuid.slice(0, 8)}…</code>`}</strong>
      ${row.last_error && html`<div class="bad-text">${row.last_error}</div>`}`,
  ],
  [
    "State",
    (row) =>
      html`<span class="state nowrap" data-deployment=${row.state}><${Dot} state=${stateMark(row.state)} /> ${row.state}</span>`,
  ],
  [
    "Machine",
    (row) => {
      const machine = row.node && (row.node.name ?? row.node.uuid);
      return machine
        ? html`<a href=${href(`machines/${machine}`)}>${machine}</a>`
        : html`<span class="faint">none</span>`;
    },
  ],
  [
    "Requested",
    (row) => [row.flavour, row.resource_class, ...row.traits].filter(Boolean).join(", "),
  ],
  [
    "Image",
    (row) =>
      html`<span title=${row.instance?.instance_info?.image_source}>${imageName(row)}</span>`,
  ],
  [
    "Project",
    (row) => html`${row.project ?? html`<span class="faint">none</span>`}
      ${row.deployed_by?.user && html`<div class="quiet">by ${row.deployed_by.user}</div>`}`,
  ],
  ["Lease ends", (row) => html`<${LeaseEnd} lease=${row.lease} />`],
];

/** @param {{ lease: any }} props */
function LeaseEnd({ lease }) {
  const { text, level } = leaseText(lease, Date.now());
  if (!lease.expires_at) return html`<span class="faint">${text}</span>`;
  const title = `${date(Date.parse(lease.expires_at))}: ${lease.at_end}`;
  return level
    ? html`<span class="badge ${level}" title=${title}>${text}</span>`
    : html`<span title=${title}>${text}</span>`;
}

/** @param {{ deployment: any, onClose: () => void, onDeleted: () => void }} props */
function DeleteDialog({ deployment, onClose, onDeleted }) {
  const name = nameOf(deployment);
  const send = async () => {
    await remove(`${ALL}/${encodeURIComponent(deployment.uuid)}`);
    showMessage(`Removal of ${name} requested.`);
    onDeleted();
  };
  return html`<${FormDialog} title="Delete ${name}" submit="Delete" isDangerous onSubmit=${send} onClose=${onClose}>
    <p>The instance is removed${deployment.node ? ` from ${deployment.node.name ?? deployment.node.uuid}` : ""}, and the machine is
      cleaned and released. Data on its disks is lost.</p><//>`;
}
