// SPDX-License-Identifier: Apache-2.0
// How a deployment gets on: each machine with its state, and how long such a thing usually takes. The
// address leads to the machines, so the view outlives a reload.

import { html } from "../../vendor/preact-htm.js";
import { Farness } from "../durations.js";
import { fleet } from "../fleet/model.js";
import { Icon } from "../icons.js";
import { href, route } from "../route.js";
import { count } from "../sizes.js";
import { State, isFailed } from "../states.js";
import { useSubject } from "../subject.js";
import { countdown, duration, useSeconds } from "../times.js";
import { waitWords } from "../waits.js";
import { isInTab, readRefused, readRun } from "./run_address.js";

/** A row that is older than the request may still tell of the time before it. */
const SETTLING_MS = 4000;

export function Progress() {
  const { query } = useSubject(route);
  const { byId, ready } = useSubject(fleet);
  useSeconds();
  const began = Number(query.get("at")) || Date.now();
  const uuids = readRun(query);
  if (!uuids) return html`<p>So many machines are not named in the address: only the tab that began this deployment can show them
    together. <a href=${href("fleet")}>The fleet</a> shows each of them.</p>`;
  const all = uuids.map((uuid) => byId.get(uuid) ?? { uuid, label: uuid, provision_state: "available",
    isGone: ready });
  const standings = all.map((row) => ({ row, ...standing(row, began) }));
  const tally = { done: 0, under: 0, bad: 0 };
  for (const { how } of standings) tally[how] += 1;
  const refused = readRefused(query);
  tally.bad += refused.length;
  const over = tally.under === 0;
  const order = { bad: 0, under: 1, done: 2 };
  const sorted = [...standings].sort((one, other) => order[one.how] - order[other.how]);
  return html`<section class="run" aria-label="Progress">
    <div class="run-head"><h2 role="status" data-progress=${over ? "over" : "running"} data-done=${tally.done}>
      ${over ? (tally.bad ? `${count(tally.bad, "machine")} failed, ${tally.done} deployed` : `${count(tally.done,
        "machine")} deployed`)
        : `Deploying ${count(tally.under, "machine")}${tally.done ? `, ${tally.done} done` : ""}${tally.bad ? `, ${tally.bad} failed` : ""}`}</h2>
      <span class="grow"></span><a class="button" href=${href("deploy")}>Another deployment</a></div>
    <div class="progress" aria-hidden="true"><i style=${{ flexGrow: tally.done }}></i>
      <i class="bad" style=${{ flexGrow: tally.bad }}></i>
      <i class="rest" style=${{ flexGrow: tally.under }}></i></div>
    <ul class="run-list">${refused.slice(0, 300).map(({ label, why }, index) => html`<li key=${index} class="run-line bad">
      <span>${label}</span><span class="run-state">not asked</span><span class="bad-text"><${Icon} name="warning" /> ${why}</span></li>`)}
      ${sorted.slice(0, 300).map((one) => html`<${Line} key=${one.row.uuid} ...${one} began=${began} />`)}</ul>
    ${!over && html`<p class="quiet">It goes on at the server if you leave. The address of this page leads back here${isInTab(query) ? ", in this tab" : ""}.</p>`}
      </section>`;
}

function Line({ row, how, began, took }) {
  return html`<li class="run-line ${how}"><a href=${href(`machines/${row.label}`)}>${row.label}</a>
    <span class="run-state"><${State} state=${row.provision_state} /></span>
    ${how === "under" && html`<${Farness} begins="deploying" goneMs=${Date.now() - began} />
      <span class="quiet run-why">${row.why ? `${waitWords(row.why)[0]}${row.until ? ` · ${countdown(row.until)} left` : ""}` : ""}
        </span>`}
    ${how === "done" && html`<span class="quiet">${took ? `after ${duration(took)}` : ""}</span>`}
    ${how === "bad" && html`<span class="bad-text">
      <${Icon} name="warning" /> ${row.isGone ? "The machine was removed." : row.error ?? row.provision_state}</span>`}
  </li>`;
}

function standing(row, began) {
  if (row.isGone) return { how: "bad" };
  if (row.provision_state === "active") return { how: "done", took: row.since > began ? row.since - began : null };
  const isOld = Date.now() - began < SETTLING_MS && !(row.since > began);
  if (!isOld && (isFailed(row.provision_state) || row.error && row.provision_state === "available")) return { how: "bad" };
  return { how: "under" };
}
