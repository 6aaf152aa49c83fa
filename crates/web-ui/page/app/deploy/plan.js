// SPDX-License-Identifier: Apache-2.0
// The plan of a deployment, reloaded whenever the selection changes, and the button that starts it.

import { html, useEffect, useState } from "../../vendor/preact-htm.js";
import { post } from "../api.js";
import { ErrorNotice } from "../fetching.js";
import { Icon } from "../icons.js";
import { typicalJob, useDurations } from "../job_progress.js";
import { Plan } from "../plan.js";
import { setQuery } from "../route.js";
import { count } from "../sizes.js";
import { stateLabel } from "../states.js";
import { duration } from "../times.js";
import { buildConfigDrive } from "./config_drive.js";
import { imageFields, imageProblem } from "./image.js";
import { storeRun } from "./run_storage.js";
import { startDeployment } from "./start.js";

const RELOAD_DELAY_MS = 250;
/** Of a class, this many machines are explained; they stand for the others. */
const MAX_EXPLAINED = 50;
/** From this many machines on, their number has to be typed to confirm. */
const CONFIRM_ABOVE = 5;

/** @typedef {{ label: string, why: string }} FailedMachine */
/**
 * @typedef {object} Explanations
 * @property {{ plan: string[], ends_in: string, nodes: string[] }[]} plans
 * @property {{ reason: string, nodes: string[] }[]} rejected
 * @param {object} props
 * @param {import("./machines.js").MachineSelection} props.machines
 * @param {FleetRow[]} props.candidates
 * @param {import("./image.js").ImageSelection} props.image
 * @param {import("./config_drive.js").InstanceIdentity | null} props.identity
 * @param {string | null} props.problem
 */

export function DeployPlan({ machines, candidates, image, identity, problem }) {
  const isClass = machines.mode === "class";
  const fields = imageProblem(image) ? null : imageFields(image);
  const explained = isClass ? candidates.slice(0, MAX_EXPLAINED) : candidates;
  const { preview, error } = usePreview(
    explained.map((row) => row.uuid),
    fields,
  );
  if (!explained.length) return html`<p class="quiet">${problem}</p>`;
  if (error) return html`<${ErrorNotice} message=${error.message} />`;
  if (!preview)
    return html`<div class="loading" role="status" aria-label="Loading the plan"></div>`;

  // A missing image is one error of the form, not one of each machine.
  const rejected = preview.rejected.filter(
    ({ reason }) => image.keep || fields || !/image_source/.test(reason),
  );
  const excluded = new Set(rejected.flatMap(({ nodes }) => nodes));
  // Only explained machines are deployed; of a class some are explained for all.
  const known = new Set([...preview.plans, ...preview.rejected].flatMap(({ nodes }) => nodes));
  const possible = candidates.filter(
    (row) => !excluded.has(row.uuid) && (isClass || known.has(row.uuid)),
  );
  return html`
    ${preview.plans.map(
      ({ plan, ends_in: end, nodes }) =>
        html`<div key=${plan.join()}><h3>${isClass ? "Each machine" : count(nodes.length, "machine")}: steps until ${stateLabel(end)}</h3>
        <${Plan} plan=${plan} /></div>`,
    )}
    ${rejected.map(
      ({
        reason,
        nodes,
      }) => html`<div key=${reason} class="notice warn"><${Icon} name="warning" /><span>
      <strong>${count(nodes.length, "machine")} skipped</strong> (${namesOf(nodes, candidates)}): ${reason}</span></div>`,
    )}
    <${Estimate} />
    <${Confirmation} machines=${machines} rows=${possible} image=${image} identity=${identity} problem=${problem}
      number=${isClass ? Math.min(machines.count, possible.length) : possible.length} />`;
}

/**
 * Loads the plans of these nodes whenever they or the image change.
 * @param {string[]} uuids
 * @param {Record<string, string> | null} fields
 * @returns {{ preview?: Explanations, error?: Error }}
 */
function usePreview(uuids, fields) {
  const [result, setResult] = useState(
    /** @type {{ preview?: Explanations, error?: Error }} */ ({}),
  );
  useEffect(() => {
    setResult({});
    if (!uuids.length) return undefined;
    let isCurrent = true;
    const load = () =>
      post("/v1/ferrite/explain", {
        target: "active",
        nodes: uuids,
        ...(fields ? { instance_info: fields } : {}),
      }).then(
        (preview) => isCurrent && setResult({ preview }),
        (error) => isCurrent && setResult({ error }),
      );
    const timer = setTimeout(load, RELOAD_DELAY_MS);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [uuids.join(), JSON.stringify(fields)]);
  return result;
}

function Estimate() {
  const job = typicalJob(useDurations(), "deploying");
  if (!job) return null;
  return html`<p class="quiet">A deployment here usually takes ${duration(job.median_ms)}, and nine of ten take
    at most ${duration(job.p90_ms)} (of ${count(job.count, "recent deployment")}).</p>`;
}

/**
 * @param {object} props
 * @param {import("./machines.js").MachineSelection} props.machines
 * @param {FleetRow[]} props.rows
 * @param {import("./image.js").ImageSelection} props.image
 * @param {import("./config_drive.js").InstanceIdentity | null} props.identity
 * @param {string | null} props.problem
 * @param {number} props.number
 */
function Confirmation({ machines, rows, image, identity, problem, number }) {
  const [progress, setProgress] = useState(/** @type {string | null} */ (null));
  const [typed, setTyped] = useState("");
  const [failed, setFailed] = useState(/** @type {FailedMachine[]} */ ([]));
  const mustType = number > CONFIRM_ABOVE;
  const isReady = !problem && number > 0 && !progress && (!mustType || typed === String(number));
  const start = async () => {
    setProgress("Starting…");
    setFailed([]);
    const { started, rejected } = await startDeployment({
      machines,
      number,
      rows,
      image,
      driveOf: (name) => buildConfigDrive(identity, name),
      onProgress: setProgress,
    });
    setProgress(null);
    if (started.length) setQuery({ ...storeRun(started, rejected), nodes: null, class: null });
    else setFailed(rejected);
  };
  return html`<p class="warn-text">Data on the disks of ${count(number, "machine")} is lost.</p>
    ${problem && html`<p class="bad-text" role="alert"><${Icon} name="warning" /> ${problem}</p>`}
    ${failed
      .slice(0, 20)
      .map(
        ({ label, why }, index) =>
          html`<div key=${index} class="notice bad" role="alert"><${Icon} name="warning" /><span><strong>${label}</strong>: ${why}</span></div>`,
      )}
    <div class="buttons">${
      mustType &&
      html`<label class="check">Type <strong>${number}</strong> to confirm <input type="text"
        class="short" inputmode="numeric" aria-label="Number of machines, to confirm" value=${typed}
        onInput=${(event) => setTyped(event.currentTarget.value)} /></label>`
    }
      <button class="button danger" data-confirm disabled=${!isReady} onClick=${start}>Deploy ${count(number, "machine")}</button>
      ${progress && html`<span class="quiet" role="status">${progress}</span>`}</div>`;
}

/**
 * @param {string[]} uuids
 * @param {FleetRow[]} rows
 */
function namesOf(uuids, rows) {
  const labels = new Map(rows.map((row) => [row.uuid, row.label]));
  const names = uuids.slice(0, 20).flatMap((uuid) => labels.get(uuid) ?? []);
  return `${names.join(", ")}${uuids.length > 20 ? "…" : ""}`;
}
