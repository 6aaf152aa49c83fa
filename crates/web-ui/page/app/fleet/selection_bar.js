// SPDX-License-Identifier: Apache-2.0
// The bar that appears with a selection: what can be done to the machines in it.

import { html, useState } from "../../vendor/preact-htm.js";
import { Icon } from "../icons.js";
import { Popover } from "../popover.js";
import { go } from "../route.js";
import { useSubject } from "../subject.js";
import { ACTIONS, action } from "../verbs.js";
import { BulkDialog } from "./bulk.js";
import { fleet } from "./model.js";
import { selectNone, selection } from "./selection.js";

const MOST_IN_ADDRESS = 100;
const FIRST = ["manage", "inspect", "provide", "deploy", "undeploy"];
const POWER = ["power-on", "power-off", "soft-off", "reboot"];
const LATER = ["maintenance-on", "maintenance-off", "rebuild", "adopt", "unrescue", "unhold", "abort"];

export function SelectionBar() {
  const { chosen } = useSubject(selection);
  const [asked, setAsked] = useState(null);
  const begin = (id) => (id === "deploy" ? toDeployment(chosen) : ask(id));
  const ask = (id) => setAsked({ action: action(id),
    rows: [...chosen].map((uuid) => fleet.value.byId.get(uuid)).filter(Boolean) });
  const items = (ids) => (close) => ids.map((id) => {
    const one = ACTIONS.find((each) => each.id === id);
    return html`<button key=${id} class="item ${one.grave || one.wipes ? "danger" : ""}" role="menuitem"
      onClick=${() => { close(); begin(id); }}>${one.label}</button>`;
  });
  return html`${chosen.size > 0 && html`<div class="selection-bar" role="toolbar" aria-label="Actions for the selection">
      <strong class="number" data-selected=${chosen.size}>${chosen.size.toLocaleString("en")} selected</strong>
      <span class="rule"></span>
      <${Popover} label="Power" content=${html`<${Icon} name="power" /> Power`}>${items(POWER)}<//>
      ${FIRST.map((id) => html`<button key=${id} class="button ${id === "undeploy" ? "danger-text" : ""}"
        onClick=${() => begin(id)}>${action(id).label}</button>`)}
      <${Popover} label="More actions" class="button square" align="right" content=${html`<${Icon} name="more" />`}>${items(LATER)}
        <//>
      <span class="rule"></span>
      <button class="button plain" onClick=${selectNone}>Clear <kbd>Esc</kbd></button>
    </div>`}
    ${asked && html`<${BulkDialog} key=${asked.action.id} action=${asked.action} rows=${asked.rows}
      onClose=${() => setAsked(null)} />`}`;
}

/** Deploying has a page of its own; the address names the machines as far as addresses go. */
function toDeployment(chosen) {
  go("deploy", chosen.size <= MOST_IN_ADDRESS ? { nodes: [...chosen].join(",") } : undefined);
}
