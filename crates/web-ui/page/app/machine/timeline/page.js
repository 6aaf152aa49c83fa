// SPDX-License-Identifier: Apache-2.0
// The timeline: the picture, the jobs to jump to, and the list with its filters.

import { html, useEffect, useMemo, useState } from "../../../vendor/preact-htm.js";
import { Icon } from "../../icons.js";
import { route } from "../../route.js";
import { Dot, isBusy } from "../../states.js";
import { useSubject } from "../../subject.js";
import { complain } from "../../toasts.js";
import { clock, duration, useSeconds } from "../../times.js";
import { arrange } from "./entries.js";
import { EntryList } from "./list.js";
import { Picture, padded } from "./picture.js";

const MOST_JOBS = 8;
/** How much is shown around an entry that was linked to. */
const AROUND_MS = 20_000;
/** Some verbs have two names, of which the API prefers the older. */
const JOBS = { active: "deploy", deleted: "undeploy" };

export function Timeline({ machine, value }) {
  const { entries, isWhole, node } = value;
  const busy = isBusy(node.provision_state);
  useSeconds(busy);
  const now = busy ? Date.now() : (entries.at(-1)?.moment ?? Date.now()) + 1000;
  const arranged = useMemo(() => arrange(entries, now), [entries, now]);
  const [view, setView] = useState(null);
  const [picked, setPicked] = useState(null);

  // At first, and while nobody moved it, the picture shows the last job.
  const shown = view ?? lastJob(arranged, now);
  useEffect(() => { setView(null); }, [node.uuid]);
  // A link from elsewhere may mean one entry; it is older than what is loaded at first, perhaps.
  const sought = Number(useSubject(route).query.get("at")) || null;
  const isThere = sought !== null && entries.some((entry) => entry.seq === sought);
  useEffect(() => {
    if (sought === null || !entries.length) return;
    const entry = entries.find((one) => one.seq === sought);
    if (entry) { setView(padded(entry.moment - AROUND_MS, entry.moment + AROUND_MS)); setPicked(sought); }
    else if (!isWhole && entries[0].seq > sought) machine.loadAll().catch(complain);
  }, [sought, isThere, entries.length > 0]);

  if (!entries.length) return html`<div class="empty"><h2>Nothing has happened yet</h2></div>`;
  const { jobs } = arranged;
  return html`<div class="timeline">
    <div class="timeline-bar">
      <div class="chips-row" role="group" aria-label="Jobs">
        ${jobs.slice(-MOST_JOBS).map((job) => html`<button key=${job.start} class="chip"
        onClick=${() => setView(padded(job.start, job.end ?? now))}>
        <${Dot} state=${job.state ?? "deploying"} /> ${JOBS[job.target] ?? job.target} <span class="faint number">
          ${clock(job.start)} · ${duration((job.end ?? now) - job.start)}</span></button>`)}</div>
      <span class="grow"></span>
      ${view && html`<button class="button plain" onClick=${() => setView(null)}>Follow</button>`}
      <button class="button plain" onClick=${() => setView(padded(arranged.from, arranged.to))}>Show all <kbd>0</kbd></button>
      ${!isWhole && html`<button class="button" onClick=${() => machine.loadAll().catch(complain)}>
        <${Icon} name="down" /> Load from the beginning</button>`}
    </div>
    <${Picture} arranged=${arranged} view=${shown} onView=${setView} picked=${picked} onPick=${setPicked} />
    <${EntryList} entries=${entries} view=${view} picked=${picked} onPick=${setPicked} />
  </div>`;
}

function lastJob({ jobs, from, to }, now) {
  const job = jobs.at(-1);
  return job ? padded(job.start, job.end ?? now) : padded(from, to);
}
