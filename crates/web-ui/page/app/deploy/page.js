// SPDX-License-Identifier: Apache-2.0
// The way to a deployment on one page: which machines, what image, who they are; what will happen; and
// then how each of them gets on. Nothing happens before the plan was seen and confirmed.

import { html, useEffect, useMemo, useState } from "../../vendor/preact-htm.js";
import { get } from "../api.js";
import { fleet, keepFleetLive } from "../fleet/model.js";
import { useAnswer } from "../loading.js";
import { route } from "../route.js";
import { Sheet } from "../sections.js";
import { useSubject } from "../subject.js";
import { Identity } from "./identity.js";
import { Image, imageProblem } from "./image.js";
import { Machines, chosenMachines, firstChoice } from "./machines.js";
import { DeployPlan } from "./plan.js";
import { Progress } from "./progress.js";

export function DeployPage() {
  const { query } = useSubject(route);
  const { rows, byId, ready } = useSubject(fleet);
  useEffect(() => keepFleetLive(), []);
  const [machines, setMachines] = useState(() => firstChoice(query));
  const [image, setImage] = useState({ source: query.get("image") ?? "", checksum: "", keep: false });
  const [identity, setIdentity] = useState({ hostname: "{name}", keys: "", userData: "", networkData: "" });
  const { data: images } = useAnswer(() => get("/v1/ferrite/images"), []);
  const picked = useMemo(() => chosenMachines(machines, rows, byId), [machines, rows]);

  if (query.get("run")) return html`<${Sheet} title="Deploy" class="deploy"><${Progress} /><//>`;
  const number = machines.way === "class" ? machines.count : picked.length;
  const problem = number === 0 ? "Choose machines first." : imageProblem(image) ?? identity.problem ?? null;
  return html`<${Sheet} title="Deploy" class="deploy">
    ${!ready ? html`<div class="loading" role="status" aria-label="Loading"></div>` : html`<ol class="steps">
      <${Step} number="1" title="Machines"><${Machines} value=${machines} rows=${rows} picked=${picked} onChange=${setMachines} />
        <//>
      <${Step} number="2" title="Image"><${Image} value=${image} known=${images?.in_use ?? []} onChange=${setImage} /><//>
      <${Step} number="3" title="Identity, keys and network">
        <${Identity} value=${identity} buildsDrives=${images?.cache !== null} example=${picked[0]?.label}
          onChange=${setIdentity} /><//>
      <${Step} number="4" title="Plan">
        <${DeployPlan} machines=${machines} picked=${picked} image=${image} identity=${images?.cache === null ? null : identity}
          problem=${problem} /><//>
    </ol>`}<//>`;
}

function Step({ number, title, children }) {
  const id = `deploy-step-${number}`;
  return html`<li class="step"><section aria-labelledby=${id}><h2 id=${id}><span class="step-number" aria-hidden="true">${number}
    </span>
    ${title}</h2><div class="step-body">${children}</div></section></li>`;
}
