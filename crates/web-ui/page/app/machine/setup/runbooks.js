// SPDX-License-Identifier: Apache-2.0
// The runbooks that match the machine's traits.

import { html, useState } from "../../../vendor/preact-htm.js";
import { get } from "../../api.js";
import { FetchResult, useFetch } from "../../fetching.js";
import { href } from "../../route.js";
import { count } from "../../sizes.js";
import { Panel, Table } from "../panel.js";
import { StepsDialog } from "./steps_dialog.js";

/**
 * @param {object} props
 * @param {MachineModel} props.machine
 * @param {NodeRecord} props.node
 * @param {ReturnType<typeof import("./page.js").stepFlow>} props.flow
 */
export function Runbooks({ machine, node, flow }) {
  const response = useFetch(() => get("/v1/runbooks?detail=true&limit=1000"), [node.uuid]);
  const [selected, setSelected] = useState(/** @type {any} */ (null));
  const matches = ({ traits }) => traits.some((trait) => node.traits.includes(trait));
  const columns = [
    ["Runbook", (runbook) => html`<strong>${runbook.name}</strong>`],
    [
      "Steps",
      (runbook) => runbook.steps.map((step) => `${step.interface}.${step.step}`).join(", "),
    ],
    ["Description", (runbook) => runbook.description ?? ""],
    [
      "Actions",
      (
        runbook,
      ) => html`<button class="button" disabled=${!flow} aria-label="Preview ${runbook.name}"
        onClick=${() => setSelected(runbook)}>Preview…</button>`,
      "right",
    ],
  ];
  return html`<${Panel} title="Runbooks" icon="play" flush><${FetchResult} result=${response}>${({
    runbooks,
  }) => {
    const matching = runbooks.filter(matches);
    if (matching.length)
      return html`<${Table} label="Runbooks" rows=${matching} keyOf=${({ uuid }) => uuid} columns=${columns} />`;
    return html`<div class="pad"><p class="quiet">${
      runbooks.length
        ? "No runbook has a trait of this machine."
        : html`There are no runbooks. <a href=${href("automation", { kind: "runbooks" })}>Create one</a>.`
    }</p></div>`;
  }}<//>
    ${
      selected &&
      html`<${StepsDialog} title=${selected.name} description=${`Runs ${count(selected.steps.length, "step")}.`}
      machine=${machine} node=${node} flow=${flow} steps=${selected.steps} runbook=${selected.name} onClose=${() => setSelected(null)} />`
    }<//>`;
}
