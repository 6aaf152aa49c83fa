// SPDX-License-Identifier: Apache-2.0
// The timeline: the jobs, the chart, and the list of entries.

import { html, useEffect, useMemo, useState } from "../../../vendor/preact-htm.js";
import { Icon } from "../../icons.js";
import { useObservable } from "../../observable.js";
import { route } from "../../route.js";
import { Dot, isBusy } from "../../states.js";
import { clock, duration, useEverySecond } from "../../times.js";
import { showError } from "../../toasts.js";
import { TimelineChart, withPadding } from "./chart.js";
import { layoutTimeline } from "./entries.js";
import { EntryList } from "./list.js";

const MAX_JOBS = 8;
/** The time shown before and after an entry that the address names. */
const CONTEXT_MS = 20_000;
/** Verbs with a newer name, which is clearer. */
const JOB_LABELS = { active: "deploy", deleted: "undeploy" };

/** @param {{ machine: MachineModel, value: MachineView }} props */
export function Timeline({ machine, value: { entries, isComplete, node } }) {
  const busy = isBusy(node.provision_state);
  useEverySecond(busy);
  const now = busy ? Date.now() : (entries.at(-1)?.timestamp ?? Date.now()) + 1000;
  const layout = useMemo(() => layoutTimeline(entries, now), [entries, now]);
  // Null follows the last job.
  const [view, setView] = useState(/** @type {{ from: number, to: number } | null} */ (null));
  const [selected, setSelected] = useState(/** @type {number | null} */ (null));
  useEffect(() => setView(null), [node.uuid]);

  // The address can name an entry, which may be older than the loaded ones.
  const linked = Number(useObservable(route).query.get("at")) || null;
  const linkedEntry = linked === null ? undefined : entries.find(({ seq }) => seq === linked);
  useEffect(() => {
    if (linkedEntry) {
      const { timestamp } = linkedEntry;
      setView(withPadding(timestamp - CONTEXT_MS, timestamp + CONTEXT_MS));
      setSelected(linked);
    } else if (linked !== null && !isComplete && entries.length && entries[0].seq > linked) {
      machine.loadAll().catch(showError);
    }
  }, [linked, !!linkedEntry, entries.length > 0]);

  if (!entries.length) return html`<div class="empty"><h2>No entries yet</h2></div>`;
  return html`<div class="timeline">
    <div class="timeline-bar">
      <div class="chips-row" role="group" aria-label="Jobs">
        ${layout.jobs
          .slice(-MAX_JOBS)
          .map(
            (job) => html`<${JobChip} key=${job.start} job=${job} now=${now} onView=${setView} />`,
          )}</div>
      <span class="grow"></span>
      ${view && html`<button class="button plain" onClick=${() => setView(null)}>Follow</button>`}
      <button class="button plain" onClick=${() => setView(withPadding(layout.from, layout.to))}>Show all <kbd>0</kbd></button>
      ${
        !isComplete &&
        html`<button class="button" onClick=${() => machine.loadAll().catch(showError)}>
        <${Icon} name="down" /> Load all entries</button>`
      }
    </div>
    <${TimelineChart} layout=${layout} view=${view ?? lastJobView(layout, now)} onView=${setView} selected=${selected} onSelect=${setSelected} />
    <${EntryList} entries=${entries} view=${view} selected=${selected} onSelect=${setSelected} />
  </div>`;
}

/** @param {{ job: import("./entries.js").TimelineJob, now: number, onView: Function }} props */
function JobChip({ job, now, onView }) {
  const end = job.end ?? now;
  return html`<button class="chip" onClick=${() => onView(withPadding(job.start, end))}>
    <${Dot} state=${job.state ?? "deploying"} /> ${JOB_LABELS[job.target] ?? job.target}
    <span class="faint number">${clock(job.start)} · ${duration(end - job.start)}</span></button>`;
}

/**
 * @param {import("./entries.js").TimelineLayout} layout
 * @param {number} now
 */
function lastJobView({ jobs, from, to }, now) {
  const job = jobs.at(-1);
  return job ? withPadding(job.start, job.end ?? now) : withPadding(from, to);
}
