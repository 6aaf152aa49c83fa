// SPDX-License-Identifier: Apache-2.0
// An action on many machines: a preview with a confirmation, then the progress of each machine.

import { html, useEffect, useMemo, useRef, useState } from "../../vendor/preact-htm.js";
import { isDangerous, titleOf } from "../actions.js";
import { post } from "../api.js";
import { requestDeploy } from "../deploy/request_deploy.js";
import { Dialog } from "../dialog.js";
import { ErrorNotice } from "../fetching.js";
import { useObservable } from "../observable.js";
import { Plan } from "../plan.js";
import { count } from "../sizes.js";
import { State, stateLabel } from "../states.js";
import { showMessage } from "../toasts.js";
import { ActionForm, isFormComplete } from "./action_form.js";
import { actionStatus, checkWithoutServer } from "./bulk_status.js";
import { fleet, refreshSoon } from "./model.js";

/** Browsers allow six connections per server; one is the event stream. */
const MAX_REQUESTS = 5;
/** From this many machines on, a destructive action has to be confirmed by typing their number. */
const CONFIRM_ABOVE = 5;
const MAX_NAMES = 40;
const MAX_LINES = 300;

/**
 * @typedef {object} BulkPreview
 * @property {FleetRow[]} possible
 * @property {{ reason: string, rows: FleetRow[] }[]} rejected
 * @property {{ plan: string[], ends_in: string, machines: number }[]} plans
 * @param {{ action: ActionDefinition, rows: FleetRow[], onClose: () => void }} props
 */

export function BulkDialog({ action, rows, onClose }) {
  const [preview, setPreview] = useState(/** @type {BulkPreview | null} */ (null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [input, setInput] = useState(/** @type {ActionInput} */ ({}));
  const [typed, setTyped] = useState("");
  const [started, setStarted] = useState(false);
  useEffect(() => {
    loadPreview(action, rows).then(setPreview, setError);
  }, []);

  if (started && preview)
    return html`<${BulkProgress} action=${action} rows=${preview.possible} input=${input} onClose=${onClose} />`;
  const number = preview?.possible.length ?? 0;
  const mustType = action.erasesData && number > CONFIRM_ABOVE;
  const isReady =
    number > 0 && isFormComplete(action, input) && (!mustType || typed === String(number));
  const footer = html`
    ${
      mustType &&
      html`<label class="check grow"><span>Type <strong>${number}</strong> to confirm</span>
      <input type="text" inputmode="numeric" style=${{ width: "90px" }} aria-label="Number of machines, to confirm" value=${typed}
        onInput=${(event) => setTyped(event.currentTarget.value)} /></label>`
    }
    <span class="grow"></span>
    <button class="button" onClick=${onClose}>Cancel</button>
    <button class="button ${isDangerous(action) ? "danger" : "primary"}" data-confirm disabled=${!isReady}
      onClick=${() => setStarted(true)}>
      ${titleOf(action)} ${count(number, "machine")}</button>`;
  return html`<${Dialog} title="${titleOf(action)}: ${count(rows.length, "machine")}" class="wide" onClose=${onClose}
    footer=${footer}>
    <p>${action.description}${action.erasesData ? " Data on the disks is lost." : ""}</p>
    ${!preview && !error && html`<div class="loading" role="status" aria-label="Loading the preview"></div>`}
    ${error && html`<${ErrorNotice} message=${error.message} />`}
    ${preview && html`<${Preview} preview=${preview} />`}
    ${number > 0 && html`<${ActionForm} action=${action} input=${input} onChange=${setInput} />`}
  <//>`;
}

/** @param {{ preview: BulkPreview }} props */
function Preview({ preview: { possible, rejected, plans } }) {
  const names = (rows) => rows.map((row) => row.label).join(", ");
  const hidden = possible.length - MAX_NAMES;
  const rejectedCount = rejected.reduce((sum, { rows }) => sum + rows.length, 0);
  return html`
    ${
      possible.length > 0 &&
      html`<div><h2>Applies to <span class="number" data-possible=${possible.length}>${count(possible.length, "machine")}</span></h2>
      <p class="quiet names">${names(possible.slice(0, MAX_NAMES))}${hidden > 0 ? ` and ${hidden} more` : ""}</p></div>`
    }
    ${plans.map(
      ({ plan, ends_in: end, machines }) => html`<div key=${plan.join()}><h2 class="minor">
      ${plans.length > 1 ? `${count(machines, "machine")}: ` : ""}Steps until ${stateLabel(end)}</h2><${Plan} plan=${plan} /></div>`,
    )}
    ${
      rejectedCount > 0 &&
      html`<div class="rejections"><h2 data-rejected=${rejectedCount}>Rejected for ${count(rejectedCount, "machine")}</h2>
      ${rejected.map(
        ({ reason, rows }) => html`<details key=${reason} class="notice warn"><summary><span>
        ${count(rows.length, "machine")}: ${reason}</span></summary><p class="quiet">${names(rows)}</p></details>`,
      )}</div>`
    }`;
}

/**
 * Fetches which machines allow the action, and their plans.
 * @param {ActionDefinition} action
 * @param {FleetRow[]} rows
 * @returns {Promise<BulkPreview>}
 */
async function loadPreview(action, rows) {
  if (!action.verb) return { ...checkWithoutServer(action, rows), plans: [] };
  const response = await post("/v1/ferrite/explain", {
    target: action.verb,
    nodes: rows.map((row) => row.uuid),
  });
  const byId = new Map(rows.map((row) => [row.uuid, row]));
  const rowsOf = (uuids) => uuids.flatMap((uuid) => byId.get(uuid) ?? []);
  return {
    possible: response.plans.flatMap(({ nodes }) => rowsOf(nodes)),
    rejected: response.rejected.map(({ reason, nodes }) => ({ reason, rows: rowsOf(nodes) })),
    plans: response.plans.map(({ plan, ends_in, nodes }) => ({
      plan,
      ends_in,
      machines: nodes.length,
    })),
  };
}

/**
 * @param {object} props
 * @param {ActionDefinition} props.action
 * @param {FleetRow[]} props.rows
 * @param {ActionInput} props.input
 * @param {() => void} props.onClose
 */
function BulkProgress({ action, rows, input, onClose }) {
  const { byId, asOf } = useObservable(fleet);
  const [results, finished] = useRequests(rows, (row) => performAction(action, row, input));
  const statuses = useMemo(
    () =>
      rows.map((row) => {
        const current = byId.get(row.uuid) ?? row;
        return { row: current, ...actionStatus(action, current, results.get(row.uuid), asOf) };
      }),
    [fleet.value, finished],
  );
  const counts = { done: 0, failed: 0, running: 0, queued: 0 };
  for (const { status } of statuses) counts[status] += 1;
  const isOver = counts.running + counts.queued === 0;
  const footer = html`<span class="grow quiet">
    ${isOver ? "All machines are finished." : "The server continues if you close this window; queued machines are skipped."}</span>
    <button class="button ${isOver ? "primary" : ""}" onClick=${onClose}>${isOver ? "Done" : "Close"}</button>`;
  // Failures first.
  const order = { failed: 0, running: 1, queued: 2, done: 3 };
  const shown = [...statuses].sort((a, b) => order[a.status] - order[b.status]).slice(0, MAX_LINES);
  return html`<${Dialog} title="${titleOf(action)}: ${count(rows.length, "machine")}" class="wide" onClose=${onClose}
    footer=${footer}>
    <p class="number" role="status" data-progress=${isOver ? "over" : "running"} data-done=${counts.done}>
      ${counts.done} done · ${counts.running} running · ${counts.failed} failed${counts.queued ? ` · ${counts.queued} queued` : ""}</p>
    <div class="progress" aria-hidden="true"><i style=${{ flexGrow: counts.done }}></i>
      <i class="bad" style=${{ flexGrow: counts.failed }}></i>
      <i class="remaining" style=${{ flexGrow: counts.running + counts.queued }}></i></div>
    <ul class="outcomes">${shown.map(
      ({ row, status, text }) => html`<li key=${row.uuid}><span>${row.label}</span>
      ${
        status === "failed"
          ? html`<span class="bad-text grow">${text}</span>`
          : html`<span class="grow">
        <${State} state=${row.provision_state} target=${row.target_provision_state} /></span><span class="quiet">${text}</span>`
      }</li>`,
    )}</ul>
  <//>`;
}

/**
 * Sends a request for each row, a few at a time, until the component unmounts. Returns the results by
 * UUID, and a number that changes at most once per frame when there are new ones.
 * @param {FleetRow[]} rows
 * @param {(row: FleetRow) => Promise<unknown>} send
 * @returns {[Map<string, import("./bulk_status.js").RequestResult>, number]}
 */
function useRequests(rows, send) {
  const results = useRef(
    /** @type {Map<string, import("./bulk_status.js").RequestResult>} */ (new Map()),
  ).current;
  const [updates, setUpdates] = useState(0);
  useEffect(() => {
    const queue = [...rows];
    let isMounted = true;
    /** @type {number | null} */
    let frame = null;
    const update = () => {
      frame = null;
      setUpdates((before) => before + 1);
    };
    const worker = async () => {
      for (let row = queue.shift(); row && isMounted; row = queue.shift()) {
        const result = await send(row).then(
          () => ({ at: performance.now() }),
          (error) => ({ error }),
        );
        results.set(row.uuid, result);
        frame ??= requestAnimationFrame(update);
        refreshSoon();
      }
    };
    for (let index = 0; index < MAX_REQUESTS; index++) worker();
    return () => {
      isMounted = false;
      if (frame !== null) cancelAnimationFrame(frame);
      if (queue.length) reportSkipped(queue);
    };
  }, []);
  return [results, updates];
}

/** @param {FleetRow[]} rows */
function reportSkipped(rows) {
  const names = rows.slice(0, 20).map((row) => row.label);
  const text = `${names.join(", ")}${rows.length > names.length ? "…" : ""}`;
  showMessage(`Skipped ${count(rows.length, "queued machine")}: ${text}`, "bad");
}

/**
 * @param {ActionDefinition} action
 * @param {FleetRow} row
 * @param {ActionInput} input
 */
function performAction(action, row, input) {
  const image = action.form === "deploy" ? (input.instance_info ?? null) : null;
  return requestDeploy(row.uuid, image, () => action.send(row.uuid, input.body));
}
