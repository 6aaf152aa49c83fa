// SPDX-License-Identifier: Apache-2.0
// The actions that are possible now, and the dialog that shows what each would do before it is done.

import { html, useEffect, useState } from "../../vendor/preact-htm.js";
import { ferritePath, get } from "../api.js";
import { askToDeploy } from "../deploy/ask.js";
import { Dialog } from "../dialog.js";
import { ActionForm, formIsComplete } from "../fleet/action_form.js";
import { Icon } from "../icons.js";
import { Plan } from "../plan.js";
import { Popover } from "../popover.js";
import { complain, say } from "../toasts.js";
import { ACTIONS, action, titleOf } from "../verbs.js";

const POWER = ["power-on", "power-off", "soft-off", "reboot"];
/** The action one most likely wants next, by state. */
const NEXT = {
  enroll: "manage", manageable: "provide", available: "deploy", rescue: "unrescue", "inspect failed": "inspect",
  "clean failed": "manage", "deploy failed": "deploy", "adopt failed": "adopt", "clean hold": "unhold", "deploy hold": "unhold",
    "service hold": "unhold",
};

export function Actions({ machine, value }) {
  const { node, verbs } = value;
  const [asked, setAsked] = useState(null);
  const hasRescue = node.rescue_interface !== "no-rescue";
  const possible = ACTIONS.filter((one) => one.verb && (hasRescue || one.id !== "rescue") && (verbs.includes(one.verb) || (one.verb === "active" && verbs.includes("deploy"))));
  const first = possible.find((one) => one.id === NEXT[node.provision_state]);
  const rest = possible.filter((one) => one !== first);
  const maintenance = action(node.maintenance ? "maintenance-off" : "maintenance-on");
  const item = (close) => (one) => html`<button key=${one.id} class="item ${one.grave || one.wipes ? "danger" : ""}"
    role="menuitem" onClick=${() => { close(); setAsked(one); }}>${one.label}</button>`;
  const powers = POWER.map(action).filter((one) => node.power_state !== (one.id === "power-on" ? "power on" : "power off") || node.power_state === null);
  return html`<div class="actions" role="toolbar" aria-label="Actions">
    ${first && html`<button class="button primary" onClick=${() => setAsked(first)}>${first.label}</button>`}
    ${rest.slice(0, 3).map((one) => html`<button key=${one.id}
      class="button wide-only ${one.grave || one.id === "undeploy" ? "danger-text" : ""}" onClick=${() => setAsked(one)}>
      ${one.label}</button>`)}
    <${Popover} label="Power" content=${html`<${Icon} name="power" /> Power`} align="right">${(close) => powers.map(item(close))}
      <//>
    <${Popover} label="More actions" class="button square" align="right" content=${html`<${Icon} name="more" />`}>
      ${(close) => html`${rest.map(item(close))}${rest.length > 0 && html`<hr />`}${item(close)(maintenance)}`}<//>
    ${asked && html`<${ActionDialog} key=${asked.id} action=${asked} machine=${machine} node=${node}
      onClose=${() => setAsked(null)} />`}
  </div>`;
}

function ActionDialog({ action: one, machine, node, onClose }) {
  const [outlook, setOutlook] = useState(null);
  const [given, setGiven] = useState({});
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    if (!one.verb) { setOutlook({ possible: true, obstacles: [], plan: [] }); return; }
    get(ferritePath(node.uuid, `/explain?target=${one.verb}`)).then(setOutlook,
      (error) => setOutlook({ possible: false, obstacles: [error.message], plan: [] }));
  }, []);
  // What is given here may remove the obstacle, such as an image: then the request itself decides.
  const isSupplied = one.form === "deploy" && given.instance_info;
  const ready = outlook && (outlook.possible || isSupplied) && formIsComplete(one, given) && !busy;
  const perform = async () => {
    setBusy(true);
    try {
      await askToDeploy(node.uuid, isSupplied ? given.instance_info : null, () => one.ask(node.uuid, given.body));
      say(`${titleOf(one)}: accepted.`);
      onClose();
    } catch (error) {
      complain(error);
      setBusy(false);
    }
    machine.refresh().catch(complain);
  };
  const footer = html`<span class="grow"></span><button class="button" onClick=${onClose}>Cancel</button>
    <button class="button ${one.wipes || one.grave ? "danger" : "primary"}" data-confirm disabled=${!ready} onClick=${perform}>
      ${titleOf(one)} ${node.name ?? ""}</button>`;
  return html`<${Dialog} title="${titleOf(one)} ${node.name ?? node.uuid}" onClose=${onClose} footer=${footer}>
    <p>${one.does}${one.wipes ? " Data on its disks is lost." : ""}</p>
    <${Outlook} outlook=${outlook} />
    <${ActionForm} action=${one} given=${given} onChange=${setGiven} />
  <//>`;
}

/** What the server says would happen. */
export function Outlook({ outlook }) {
  if (!outlook) return html`<div class="loading" role="status" aria-label="Asking what would happen"></div>`;
  return html`
    ${outlook.obstacles.map((obstacle) => html`<div key=${obstacle} class="notice bad"><${Icon} name="warning" /><span>${obstacle}
      </span></div>`)}
    ${outlook.plan.length > 0 && html`<div><h2
      class="minor">What will happen${outlook.ends_in ? `, ending in ${outlook.ends_in}` : ""}</h2><${Plan} plan=${outlook.plan} />
      </div>`}`;
}
