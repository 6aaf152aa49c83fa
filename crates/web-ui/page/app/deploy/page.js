// SPDX-License-Identifier: Apache-2.0
// The deploy page: machines, image, identity, then the plan with its confirmation, and afterwards the
// progress.

import { html, useEffect, useMemo, useState } from "../../vendor/preact-htm.js";
import { get } from "../api.js";
import { useFetch } from "../fetching.js";
import { fleet, followFleet } from "../fleet/model.js";
import { Icon } from "../icons.js";
import { useObservable } from "../observable.js";
import { PageFrame } from "../page_parts.js";
import { route } from "../route.js";
import { IdentityForm } from "./identity.js";
import { ImagePicker, imageProblem } from "./image.js";
import { MachinePicker, candidateRows, initialSelection } from "./machines.js";
import { DeployPlan } from "./plan.js";
import { DeployProgress } from "./progress.js";

export function DeployPage() {
  const { query } = useObservable(route);
  const { rows, byId, ready } = useObservable(fleet);
  useEffect(() => followFleet(), []);
  const [machines, setMachines] = useState(() => initialSelection(query));
  const [image, setImage] = useState({
    source: query.get("image") ?? "",
    checksum: "",
    keep: false,
  });
  const [identity, setIdentity] = useState(
    /** @type {import("./config_drive.js").InstanceIdentity} */ ({
      hostname: "{name}",
      keys: "",
      userData: "",
      networkData: "",
    }),
  );
  const { data: images } = useFetch(() => get("/v1/ferrite/images"), []);
  const candidates = useMemo(() => candidateRows(machines, rows, byId), [machines, rows]);

  if (query.get("run"))
    return html`<${PageFrame} title="Deploy" class="deploy"><${DeployProgress} /><//>`;
  if (!ready)
    return html`<${PageFrame} title="Deploy" class="deploy"><div class="loading" role="status" aria-label="Loading"></div><//>`;
  const number = machines.mode === "class" ? machines.count : candidates.length;
  const hasMachines = candidates.length > 0 && number > 0;
  const problem = hasMachines
    ? (imageProblem(image) ?? identity.problem ?? null)
    : "Select machines first.";
  // Without boot services the server has no image cache and builds no config drives.
  const buildsDrives = images?.cache !== null;
  return html`<${PageFrame} title="Deploy" class="deploy"><ol class="steps">
      <${Step} number="1" title="Machines" isDone=${hasMachines}>
        <${MachinePicker} value=${machines} rows=${rows} candidates=${candidates} onChange=${setMachines} /><//>
      <${Step} number="2" title="Image" isDone=${imageProblem(image) === null}>
        <${ImagePicker} value=${image} imagesInUse=${images?.in_use ?? []} onChange=${setImage} /><//>
      <${Step} number="3" title="Identity, keys and network" isDone=${!identity.problem}>
        <${IdentityForm} value=${identity} buildsDrives=${buildsDrives} example=${candidates[0]?.label} onChange=${setIdentity} /><//>
      <${Step} number="4" title="Plan" isDone=${false}>
        <${DeployPlan} machines=${machines} candidates=${candidates} image=${image} identity=${buildsDrives ? identity : null}
          problem=${problem} /><//>
    </ol><//>`;
}

/** @param {{ number: string, title: string, isDone: boolean, children: any }} props */
function Step({ number, title, isDone, children }) {
  const id = `deploy-step-${number}`;
  return html`<li class="step ${isDone ? "done" : ""}"><section aria-labelledby=${id}>
    <h2 id=${id}><span class="step-number" aria-hidden="true">${isDone ? html`<${Icon} name="check" />` : number}</span> ${title}</h2>
    <div class="step-body">${children}</div></section></li>`;
}
