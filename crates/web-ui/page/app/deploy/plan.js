// SPDX-License-Identifier: Apache-2.0
// What the deployment would do to which machines and what stands in the way, asked of the server anew
// whenever the choice changes; and the button that begins it.

import { html, useEffect, useState } from "../../vendor/preact-htm.js";
import { post } from "../api.js";
import { useDurations, usualJob } from "../durations.js";
import { Icon } from "../icons.js";
import { Plan } from "../plan.js";
import { setQuery } from "../route.js";
import { count } from "../sizes.js";
import { duration } from "../times.js";
import { configDrive } from "./identity.js";
import { imageProblem } from "./image.js";
import { begin } from "./run.js";
import { keepRun } from "./run_address.js";

const ASK_AFTER_MS = 250;

export function DeployPlan({ machines, picked, image, identity, problem }) {
  const [outlook, setOutlook] = useState(null);
  const [busy, setBusy] = useState(null);
  const [typed, setTyped] = useState("");
  const [failed, setFailed] = useState([]);
  const job = usualJob(useDurations(), "deploying");
  const isClass = machines.way === "class";
  const given = image.keep || imageProblem(image) ? null : { image_source: image.source,
    ...(image.checksum ? { image_checksum: image.checksum } : {}) };
  const asked = (isClass ? picked.slice(0, 50) : picked).map((row) => row.uuid);
  useEffect(() => {
    setOutlook(null);
    if (!asked.length) return undefined;
    let isCurrent = true;
    const timer = setTimeout(() => post("/v1/ferrite/explain",
      { target: "active", nodes: asked, ...(given ? { instance_info: given } : {}) })
      .then((answer) => isCurrent && setOutlook(answer), (error) => isCurrent && setOutlook({ error })), ASK_AFTER_MS);
    return () => { isCurrent = false; clearTimeout(timer); };
  }, [asked.join(), JSON.stringify(given)]);

  if (!asked.length) return html`<p class="quiet">${problem}</p>`;
  if (!outlook) return html`<div class="loading" role="status" aria-label="Asking what would happen"></div>`;
  if (outlook.error) return html`<div class="notice bad"><${Icon} name="warning" /><span>${outlook.error.message}</span></div>`;
  // That there is no image yet is said once, and not for each machine.
  const refused = outlook.refused.filter(({ why }) => image.keep || given || !/image_source/.test(why));
  const barred = new Set(refused.flatMap(({ nodes }) => nodes));
  // Only what the answer tells of is deployed; of a class it tells of some for all.
  const told = new Set([...outlook.plans, ...outlook.refused].flatMap(({ nodes }) => nodes));
  const possible = picked.filter((row) => !barred.has(row.uuid) && (isClass || told.has(row.uuid)));
  const number = isClass ? Math.min(machines.count, possible.length) : possible.length;
  const mustType = number > 5;
  const ready = !problem && number > 0 && !busy && (!mustType || typed === String(number));
  const start = async () => {
    setBusy("Asking…");
    setFailed([]);
    const { asked: begun, refused: left } = await begin({ machines, number, rows: possible, image, driveOf: (name) => configDrive(identity, name),
      tell: setBusy });
    setBusy(null);
    if (begun.length) setQuery({ ...keepRun(begun, left), nodes: null, class: null });
    else setFailed(left);
  };
  const names = (nodes) => nodes.slice(0, 20).map((uuid) => picked.find((row) => row.uuid === uuid)?.label).filter(Boolean).join(", ")
    + (nodes.length > 20 ? "…" : "");
  return html`
    ${outlook.plans.map(({ plan, ends_in: end, nodes }) => html`<div key=${plan.join()}><h3>${isClass ? "Each machine"
      : count(nodes.length, "machine")}, ending in ${end}</h3><${Plan} plan=${plan} /></div>`)}
    ${refused.map(({ why, nodes }) => html`<div key=${why} class="notice warn"><${Icon} name="warning" /><span>
      <strong>${count(nodes.length, "machine")} left out</strong> (${names(nodes)}): ${why}</span></div>`)}
    ${job && html`<p class="quiet">${`A deployment usually takes ${duration(job.median_ms)} here, and nine in ten no more than ${duration(job.slow_ms)} (${count(job.count,
      "deployment")} lately).`}</p>`}
    <p class="warn-text">Data on the disks of ${count(number, "machine")} is lost.</p>
    ${problem && html`<p class="bad-text" role="alert">${problem}</p>`}
    ${failed.slice(0, 20).map(({ label, why }, index) => html`<div key=${index} class="notice bad" role="alert"><${Icon} name="warning" />
      <span><strong>${label}</strong>: ${why}</span></div>`)}
    <div class="buttons">${mustType && html`<label class="check">Type <strong>${number}</strong> to confirm <input type="text"
        class="short" inputmode="numeric" aria-label="Number of machines, to confirm" value=${typed}
        onInput=${(event) => setTyped(event.currentTarget.value)} /></label>`}
      <button class="button danger" data-confirm disabled=${!ready} onClick=${start}>Deploy ${count(number, "machine")}</button>
      ${busy && html`<span class="quiet" role="status">${busy}</span>`}</div>`;
}
