// SPDX-License-Identifier: Apache-2.0
// How long jobs usually take, as measured by the server, and the progress of a running one.

import { html, useEffect } from "../vendor/preact-htm.js";
import { get } from "./api.js";
import { Observable, useObservable } from "./observable.js";
import { duration } from "./times.js";

const RELOAD_MS = 60_000;

const durations = new Observable(/** @type {JobDuration[]} */ ([]));
let loadedAt = -Infinity;

/** Returns the measured jobs; reloads them at most once a minute while a component uses them. */
export function useDurations() {
  const jobs = useObservable(durations);
  useEffect(() => {
    if (performance.now() - loadedAt < RELOAD_MS) return;
    loadedAt = performance.now();
    // Without them there is no estimate; the error is not worth a message.
    get("/v1/ferrite/durations").then(
      (response) => durations.set(response.jobs),
      () => null,
    );
  });
  return jobs;
}

/**
 * Returns the most frequent job that begins with this state, or null.
 * @param {JobDuration[]} jobs
 * @param {string} state
 */
export function typicalJob(jobs, state) {
  const matching = jobs.filter((job) => job.starts_in === state);
  return matching.sort((a, b) => b.count - a.count)[0] ?? null;
}

/**
 * The progress of a job: its share, null if unknown, and a text. The share stays below 1.
 * @param {Pick<JobDuration, "median_ms" | "p90_ms"> | null} job
 * @param {number} elapsedMs
 */
export function describeProgress(job, elapsedMs) {
  const elapsed = `${wholeSeconds(elapsedMs)} elapsed`;
  if (!job) return { share: null, text: elapsed };
  const slow = elapsedMs > job.p90_ms ? ", slower than usual" : "";
  return {
    share: Math.min(0.97, elapsedMs / Math.max(job.median_ms, 1)),
    text: `${elapsed}, usually ${wholeSeconds(job.median_ms)}${slow}`,
  };
}

/**
 * A bar and a text for a running job; with `onlyIfKnown` nothing until one like it was measured.
 * @param {{ begins: string, elapsedMs: number, onlyIfKnown?: boolean }} props
 */
export function JobProgress({ begins, elapsedMs, onlyIfKnown = false }) {
  const job = typicalJob(useDurations(), begins);
  if (onlyIfKnown && !job) return null;
  const { share, text } = describeProgress(job, elapsedMs);
  return html`<span class="job-progress">${
    share !== null &&
    html`<span class="progress" aria-hidden="true">
    <i class="running" style=${{ flexGrow: share }}></i><i class="remaining" style=${{ flexGrow: 1 - share }}></i></span>`
  }
    <span class="quiet number">${text}</span></span>`;
}

/** @param {number} ms */
const wholeSeconds = (ms) =>
  duration(Math.max(1000, Math.round(ms / 1000) * 1000)).replace(".0", "");
