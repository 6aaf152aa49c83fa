// SPDX-License-Identifier: Apache-2.0
// Previews clean or service steps, and runs them after a confirmation.

import { html, useEffect, useState } from "../../../vendor/preact-htm.js";
import { ferritePath, nodePath, post, put } from "../../api.js";
import { Dialog } from "../../dialog.js";
import { count } from "../../sizes.js";
import { showError, showMessage } from "../../toasts.js";
import { ActionPreview } from "../actions.js";

/**
 * `prepare` is called before the steps are requested, for example to store a target configuration; the
 * steps of a `runbook` are requested by its name.
 * @param {object} props
 * @param {string} props.title
 * @param {string} props.description
 * @param {MachineModel} props.machine
 * @param {NodeRecord} props.node
 * @param {any} props.flow
 * @param {any} props.steps
 * @param {string} [props.runbook]
 * @param {any} [props.prepare]
 * @param {() => void} props.onClose
 * @param {Function} [props.onAccepted]
 */
export function StepsDialog({
  title,
  description,
  machine,
  node,
  flow: currentFlow,
  steps,
  runbook = "",
  prepare = async () => {},
  onClose,
  onAccepted = () => {},
}) {
  // The machine may leave its state while the dialog is open; the server then rejects the request.
  const [flow] = useState(currentFlow);
  const [preview, setPreview] = useState(/** @type {Explanation | null} */ (null));
  const [busy, setBusy] = useState(false);
  const body = { target: flow.target, ...(runbook ? { runbook } : { [flow.stepsField]: steps }) };
  useEffect(() => {
    post(ferritePath(node.uuid, "/explain"), body).then(setPreview, (error) =>
      setPreview({ possible: false, obstacles: [error.message], plan: [] }),
    );
  }, []);
  const run = async () => {
    setBusy(true);
    try {
      await prepare();
      await put(nodePath(node.uuid, "/states/provision"), body);
      showMessage(`${title}: accepted.`);
      onAccepted();
      onClose();
    } catch (error) {
      showError(/** @type {Error} */ (error));
      setBusy(false);
    }
    machine.refresh().catch(showError);
  };
  const footer = html`<span class="grow"></span><button class="button" onClick=${onClose}>Cancel</button>
    <button class="button danger" data-confirm disabled=${!preview?.possible || busy}
      onClick=${run}>Run ${count(steps.length, "step")}</button>`;
  return html`<${Dialog} title="${title}: ${node.name ?? node.uuid}" class="wide" onClose=${onClose} footer=${footer}>
    <p>${description} Runs as ${flow.label}; the machine may be rebooted.</p>
    <details><summary class="quiet">Steps</summary><pre class="plan" tabindex="0">${JSON.stringify(steps, null, 2)}</pre></details>
    <${ActionPreview} preview=${preview} />
  <//>`;
}
