// SPDX-License-Identifier: Apache-2.0
// How long jobs usually take, as the server has seen it lately, and how far one is that goes on.

import { html, useEffect } from "../vendor/preact-htm.js";
import { get } from "./api.js";
import { Subject, useSubject } from "./subject.js";
import { duration } from "./times.js";

const AGAIN_MS = 60_000;

/** The jobs as the server has them; empty until it has said. */
const usual = new Subject([]);
let askedAt = -Infinity;

/** The jobs that were measured, asked for now and then while somebody looks. */
export function useDurations() {
  const jobs = useSubject(usual);
  useEffect(() => {
    if (performance.now() - askedAt < AGAIN_MS) return;
    askedAt = performance.now();
    // Without it there is no estimate, which is no reason to complain.
    get("/v1/ferrite/durations").then(({ jobs: told }) => usual.set(told), () => null);
  });
  return jobs;
}

/** The most common job that begins with this state, or null. */
export function usualJob(jobs, begins) {
  return jobs.filter((job) => job.begins === begins).sort((one, other) => other.count - one.count)[0] ?? null;
}

/** How far a job is: `{share, words}`. The share never gets to the end by itself. */
export function farness(job, goneMs) {
  if (!job) return { share: null, words: `${rounded(goneMs)} gone` };
  const words = goneMs > job.slow_ms ? `usually ${rounded(job.median_ms)}, ${rounded(goneMs)} gone: slower than most`
    : `usually ${rounded(job.median_ms)}, ${rounded(goneMs)} gone`;
  return { share: Math.min(0.97, goneMs / Math.max(job.median_ms, 1)), words };
}

/** A bar and words for a job that goes on; nothing, if only `ifKnown`, as long as none was measured. */
export function Farness({ begins, goneMs, ifKnown = false }) {
  const job = usualJob(useDurations(), begins);
  if (ifKnown && !job) return null;
  const { share, words } = farness(job, goneMs);
  return html`<span class="farness">${share !== null && html`<span class="progress" aria-hidden="true">
    <i class="under" style=${{ flexGrow: share }}></i><i class="rest" style=${{ flexGrow: 1 - share }}></i></span>`}
    <span class="quiet number">${words}</span></span>`;
}

const rounded = (ms) => duration(Math.max(1000, Math.round(ms / 1000) * 1000)).replace(".0", "");
