// SPDX-License-Identifier: Apache-2.0
// Shows what running these steps would do, and runs them when told to.

import { html, useEffect, useState } from "../../../vendor/preact-htm.js";
import { ferritePath, nodePath, post, put } from "../../api.js";
import { Dialog } from "../../dialog.js";
import { complain, say } from "../../toasts.js";
import { Outlook } from "../actions.js";

/**
 * `first` is done before the steps are asked for, such as writing down a target configuration; steps of a
 * `runbook` are asked for by its name.
 */
export function StepsDialog({ title, does, machine, node, flow: now, steps, runbook, first, onClose, onDone }) {
  // The machine may leave its state while this is open; the request then says so.
  const [flow] = useState(now);
  const [outlook, setOutlook] = useState(null);
  const [busy, setBusy] = useState(false);
  const body = { target: flow.target, ...(runbook ? { runbook } : { [flow.steps]: steps }) };
  useEffect(() => {
    post(ferritePath(node.uuid, "/explain"), body).then(setOutlook,
      (error) => setOutlook({ possible: false, obstacles: [error.message], plan: [] }));
  }, []);
  const run = async () => {
    setBusy(true);
    try {
      await first?.();
      await put(nodePath(node.uuid, "/states/provision"), body);
      say(`${title}: accepted.`);
      onDone?.();
      onClose();
    } catch (error) {
      complain(error);
      setBusy(false);
    }
    machine.refresh().catch(complain);
  };
  const footer = html`<span class="grow"></span><button class="button" onClick=${onClose}>Cancel</button>
    <button class="button danger" data-confirm disabled=${!outlook?.possible || busy}
      onClick=${run}>Run ${steps.length} ${steps.length === 1 ? "step" : "steps"}</button>`;
  return html`<${Dialog} title="${title}: ${node.name ?? node.uuid}" class="wide" onClose=${onClose} footer=${footer}>
    <p>${does} It runs as ${flow.word}; the machine may be rebooted.</p>
    <details><summary class="quiet">The steps</summary><pre class="plan" tabindex="0">
      ${JSON.stringify(steps, null, 2)}</pre></details>
    <${Outlook} outlook=${outlook} />
  <//>`;
}
