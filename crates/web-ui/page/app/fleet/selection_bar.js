// SPDX-License-Identifier: Apache-2.0
// The bar with the actions for the selected machines.

import { html, useState } from "../../vendor/preact-htm.js";
import { actionById, isDangerous, ruleOf } from "../actions.js";
import { caller, matchesAnyRule } from "../caller.js";
import { Icon } from "../icons.js";
import { useObservable } from "../observable.js";
import { Popover } from "../popover.js";
import { navigate } from "../route.js";
import { BulkDialog } from "./bulk_dialog.js";
import { fleet } from "./model.js";
import { clearSelection, selection } from "./selection.js";

/** More UUIDs would make the address too long. */
const MAX_IN_ADDRESS = 100;
const MAIN_ACTIONS = ["manage", "inspect", "provide", "deploy", "undeploy"];
const POWER_ACTIONS = ["power-on", "power-off", "soft-off", "reboot"];
const MORE_ACTIONS = [
  "maintenance-on",
  "maintenance-off",
  "rebuild",
  "adopt",
  "unrescue",
  "unhold",
  "abort",
];

export function SelectionBar() {
  const { selected } = useObservable(selection);
  const known = useObservable(caller);
  // The server decides for each machine; hidden is what is allowed for none.
  const allowed = (ids) => ids.filter((id) => matchesAnyRule(known, [ruleOf(actionById(id))]));
  const [powerActions, mainActions, moreActions] = [POWER_ACTIONS, MAIN_ACTIONS, MORE_ACTIONS].map(
    allowed,
  );
  const [pending, setPending] = useState(
    /** @type {{ action: ActionDefinition, rows: FleetRow[] } | null} */ (null),
  );
  const begin = (id) => {
    if (id === "deploy") {
      openDeployPage(selected);
      return;
    }
    const rows = [...selected].flatMap((uuid) => fleet.value.byId.get(uuid) ?? []);
    setPending({ action: actionById(id), rows });
  };
  const items = (ids) => (close) =>
    ids.map(actionById).map(
      (
        action,
      ) => html`<button key=${action.id} class="item ${isDangerous(action) ? "danger" : ""}" role="menuitem"
      onClick=${() => {
        close();
        begin(action.id);
      }}>${action.label}</button>`,
    );
  return html`${
    selected.size > 0 &&
    html`<div class="selection-bar" role="toolbar" aria-label="Actions for the selection">
      <strong class="number" data-selected=${selected.size}>${selected.size.toLocaleString("en")} selected</strong>
      <span class="rule"></span>
      ${powerActions.length > 0 && html`<${Popover} label="Power" content=${html`<${Icon} name="power" /> Power`}>${items(powerActions)}<//>`}
      ${mainActions.map(
        (id) => html`<button key=${id} class="button ${id === "undeploy" ? "danger-text" : ""}"
        onClick=${() => begin(id)}>${actionById(id).label}</button>`,
      )}
      ${moreActions.length > 0 && html`<${Popover} label="More actions" class="button square" align="right" content=${html`<${Icon} name="more" />`}>${items(moreActions)}<//>`}
      <span class="rule"></span>
      <button class="button plain" onClick=${clearSelection}>Clear <kbd>Esc</kbd></button>
    </div>`
  }
    ${
      pending &&
      html`<${BulkDialog} key=${pending.action.id} action=${pending.action} rows=${pending.rows}
      onClose=${() => setPending(null)} />`
    }`;
}

/**
 * Opens the deploy page, which uses the selection if the address does not name the machines.
 * @param {Set<string>} selected
 */
function openDeployPage(selected) {
  const query = selected.size <= MAX_IN_ADDRESS ? { nodes: [...selected].join(",") } : undefined;
  navigate("deploy", query);
}
