// SPDX-License-Identifier: Apache-2.0
// The actions that the machine's state allows, and the dialog with the preview of an action.

import { html, useEffect, useState } from "../../vendor/preact-htm.js";
import { ACTIONS, actionById, isDangerous, ruleOf, titleOf } from "../actions.js";
import { ferritePath, get } from "../api.js";
import { caller, denial } from "../caller.js";
import { requestDeploy } from "../deploy/request_deploy.js";
import { Dialog } from "../dialog.js";
import { ErrorNotice } from "../fetching.js";
import { ActionForm, isFormComplete } from "../fleet/action_form.js";
import { Icon } from "../icons.js";
import { useObservable } from "../observable.js";
import { Plan } from "../plan.js";
import { Popover } from "../popover.js";
import { stateLabel } from "../states.js";
import { showError, showMessage } from "../toasts.js";

const POWER_ACTIONS = ["power-on", "power-off", "soft-off", "reboot"];
/** Actions with a button of their own, beside the suggested one. */
const MAX_BUTTONS = 3;
/**
 * The most likely next action in a state.
 * @type {Partial<Record<ProvisionState, string>>}
 */
const SUGGESTED_ACTION = {
  enroll: "manage",
  manageable: "provide",
  available: "deploy",
  rescue: "unrescue",
  "inspect failed": "inspect",
  "clean failed": "manage",
  "deploy failed": "deploy",
  "adopt failed": "adopt",
  "clean hold": "unhold",
  "deploy hold": "unhold",
  "service hold": "unhold",
};

/** @param {{ machine: MachineModel, value: MachineView }} props */
export function Actions({ machine, value: { node, verbs } }) {
  const [pending, setPending] = useState(/** @type {ActionDefinition | null} */ (null));
  const known = useObservable(caller);
  const reasonOf = (action) => denial(known, ruleOf(action), node);
  const possible = ACTIONS.filter((action) => isPossible(action, node, verbs));
  const suggested = possible.find(({ id }) => id === SUGGESTED_ACTION[node.provision_state]);
  const others = possible.filter((action) => action !== suggested);
  const maintenance = actionById(node.maintenance ? "maintenance-off" : "maintenance-on");
  const powerActions = POWER_ACTIONS.filter((id) => {
    const target = id === "power-on" ? "power on" : "power off";
    return node.power_state !== target;
  }).map(actionById);
  const item =
    (close) =>
    (action) => html`<button key=${action.id} class="item ${isDangerous(action) ? "danger" : ""}"
    role="menuitem" disabled=${!!reasonOf(action)} title=${reasonOf(action) ?? undefined} onClick=${() => {
      close();
      setPending(action);
    }}>${action.label}</button>`;
  return html`<div class="actions" role="toolbar" aria-label="Actions">
    ${
      suggested &&
      html`<button class="button primary" disabled=${!!reasonOf(suggested)} title=${reasonOf(suggested) ?? undefined}
      onClick=${() => setPending(suggested)}>${suggested.label}</button>`
    }
    ${others.slice(0, MAX_BUTTONS).map(
      (
        action,
      ) => html`<button key=${action.id} class="button wide-only ${action.isDisruptive || action.id === "undeploy" ? "danger-text" : ""}"
      disabled=${!!reasonOf(action)} title=${reasonOf(action) ?? undefined} onClick=${() => setPending(action)}>${action.label}</button>`,
    )}
    <${Popover} label="Power" content=${html`<${Icon} name="power" /> Power`} align="right">${(close) => powerActions.map(item(close))}<//>
    <${Popover} label="More actions" class="button square" align="right" content=${html`<${Icon} name="more" />`}>
      ${(close) => html`${others.map(item(close))}${others.length > 0 && html`<hr />`}${item(close)(maintenance)}`}<//>
    ${pending && html`<${ActionDialog} key=${pending.id} action=${pending} machine=${machine} node=${node} onClose=${() => setPending(null)} />`}
  </div>`;
}

/**
 * Whether the node's state allows an action.
 * @param {ActionDefinition} action
 * @param {NodeRecord} node
 * @param {string[]} verbs
 */
function isPossible({ id, verb }, node, verbs) {
  if (!verb || (id === "rescue" && node.rescue_interface === "no-rescue")) return false;
  return verbs.includes(verb);
}

/**
 * @param {object} props
 * @param {ActionDefinition} props.action
 * @param {MachineModel} props.machine
 * @param {NodeRecord} props.node
 * @param {() => void} props.onClose
 */
function ActionDialog({ action, machine, node, onClose }) {
  const [preview, setPreview] = useState(/** @type {Explanation | null} */ (null));
  const [input, setInput] = useState(/** @type {ActionInput} */ ({}));
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    if (!action.verb) {
      setPreview({ possible: true, obstacles: [], plan: [] });
      return;
    }
    get(ferritePath(node.uuid, `/explain?target=${action.verb}`)).then(setPreview, (error) =>
      setPreview({ possible: false, obstacles: [error.message], plan: [] }),
    );
  }, []);
  // An image that is entered here may remove the obstacle; then the server decides.
  const image = action.form === "deploy" ? (input.instance_info ?? null) : null;
  const isReady = preview && (preview.possible || image) && isFormComplete(action, input) && !busy;
  const perform = async () => {
    setBusy(true);
    try {
      await requestDeploy(node.uuid, image, () => action.send(node.uuid, input.body));
      showMessage(`${titleOf(action)}: accepted.`);
      onClose();
    } catch (error) {
      showError(/** @type {Error} */ (error));
      setBusy(false);
    }
    machine.refresh().catch(showError);
  };
  const footer = html`<span class="grow"></span><button class="button" onClick=${onClose}>Cancel</button>
    <button class="button ${isDangerous(action) ? "danger" : "primary"}" data-confirm disabled=${!isReady} onClick=${perform}>
      ${titleOf(action)} ${node.name ?? ""}</button>`;
  return html`<${Dialog} title="${titleOf(action)} ${node.name ?? node.uuid}" onClose=${onClose} footer=${footer}>
    <p>${action.description}${action.erasesData ? " Data on the disks is lost." : ""}</p>
    <${ActionPreview} preview=${preview} />
    <${ActionForm} action=${action} input=${input} onChange=${setInput} />
  <//>`;
}

/**
 * The obstacles and the plan that `explain` returned; `preview` is null while loading.
 * @param {{ preview: Explanation | null }} props
 */
export function ActionPreview({ preview }) {
  if (!preview)
    return html`<div class="loading" role="status" aria-label="Loading the preview"></div>`;
  const { obstacles, plan, ends_in: end } = preview;
  return html`
    ${obstacles.map((obstacle) => html`<${ErrorNotice} key=${obstacle} message=${obstacle} />`)}
    ${plan.length > 0 && html`<div><h2 class="minor">Steps${end ? ` until ${stateLabel(end)}` : ""}</h2><${Plan} plan=${plan} /></div>`}`;
}
