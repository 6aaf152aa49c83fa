// SPDX-License-Identifier: Apache-2.0
// The progress of a deployment: each machine with its state and the usual duration. The address names
// the machines, so the view survives a reload.

import { html } from "../../vendor/preact-htm.js";
import { errorCause } from "../errors.js";
import { fleet } from "../fleet/model.js";
import { Icon } from "../icons.js";
import { JobProgress, describeProgress, typicalJob, useDurations } from "../job_progress.js";
import { useObservable } from "../observable.js";
import { href, route } from "../route.js";
import { count } from "../sizes.js";
import { State } from "../states.js";
import { duration, useEverySecond } from "../times.js";
import { waitText } from "../wait_reasons.js";
import { deployStatus } from "./run_status.js";
import { isStoredInTab, readRejected, readRun } from "./run_storage.js";

const MAX_LINES = 300;

export function DeployProgress() {
  const { query } = useObservable(route);
  const { byId, ready } = useObservable(fleet);
  const job = typicalJob(useDurations(), "deploying");
  useEverySecond();
  const startedAt = Number(query.get("at")) || Date.now();
  const uuids = readRun(query);
  if (!uuids)
    return html`<p>The list of machines is stored in the tab that started this deployment, because it is too long for the
    address. <a href=${href("fleet")}>The fleet</a> shows all machines.</p>`;
  const lines = uuids.map((uuid) => {
    const row = byId.get(uuid);
    return { uuid, row, ...deployStatus(row, startedAt, Date.now(), ready) };
  });
  const rejected = readRejected(query);
  const counts = { done: 0, running: 0, failed: rejected.length };
  for (const { status } of lines) counts[status] += 1;
  const isOver = counts.running === 0;
  const { share } = describeProgress(job, Date.now() - startedAt);
  const order = { failed: 0, running: 1, done: 2 };
  const sorted = [...lines].sort((a, b) => order[a.status] - order[b.status]);
  return html`<section class="run" aria-label="Progress">
    <div class="run-head"><h2 role="status" data-progress=${isOver ? "over" : "running"} data-done=${counts.done}>${headline(counts)}</h2>
      <span class="grow"></span><a class="button" href=${href("deploy")}>New deployment</a></div>
    <div class="progress" aria-hidden="true"><i style=${{ flexGrow: counts.done }}></i>
      <i class="bad" style=${{ flexGrow: counts.failed }}></i>
      <i class="running" style=${{ flexGrow: counts.running * (share ?? 0) }}></i>
      <i class="remaining" style=${{ flexGrow: counts.running * (1 - (share ?? 0)) }}></i></div>
    <ul class="run-list">${rejected.slice(0, MAX_LINES).map(
      ({ label, why }, index) => html`<li key=${index} class="run-line bad">
      <span>${label}</span><span class="run-state">not started</span><span class="bad-text"><${Icon} name="warning" /> ${why}</span></li>`,
    )}
      ${sorted.slice(0, MAX_LINES).map((line) => html`<${RunLine} key=${line.uuid} ...${line} startedAt=${startedAt} />`)}</ul>
    ${!isOver && html`<p class="quiet">The deployment continues on the server if you leave this page; its address shows it again${isStoredInTab(query) ? " in this tab" : ""}.</p>`}
      </section>`;
}

/** @param {{ done: number, running: number, failed: number }} counts */
function headline({ done, running, failed }) {
  if (running)
    return [
      `Deploying ${count(running, "machine")}`,
      done && `${done} done`,
      failed && `${failed} failed`,
    ]
      .filter(Boolean)
      .join(", ");
  return failed
    ? `${count(failed, "machine")} failed, ${done} deployed`
    : `${count(done, "machine")} deployed`;
}

/**
 * @param {object} props
 * @param {string} props.uuid
 * @param {FleetRow | undefined} props.row
 * @param {string} props.status
 * @param {number | null | undefined} props.tookMs
 * @param {number} props.startedAt
 */
function RunLine({ uuid, row, status, tookMs, startedAt }) {
  const label = row?.label ?? uuid;
  const error = () => {
    if (!row) return "The machine was removed.";
    return row.error ? errorCause(row.error) : row.provision_state;
  };
  return html`<li class="run-line ${status === "failed" ? "bad" : status}"><a href=${href(`machines/${label}`)}>${label}</a>
    <span class="run-state">${row && html`<${State} state=${row.provision_state} />`}</span>
    ${
      status === "running" &&
      html`<${JobProgress} begins="deploying" elapsedMs=${Date.now() - startedAt} />
      <span class="quiet run-why">${row && waitText(row)}</span>`
    }
    ${status === "done" && html`<span class="quiet">${tookMs ? `after ${duration(tookMs)}` : ""}</span>`}
    ${status === "failed" && html`<span class="bad-text"><${Icon} name="warning" /> ${error()}</span>`}
  </li>`;
}
