// SPDX-License-Identifier: Apache-2.0
// The runbooks that may be run on this machine.

import { html, useState } from "../../../vendor/preact-htm.js";
import { get } from "../../api.js";
import { Answer, useAnswer } from "../../loading.js";
import { href } from "../../route.js";
import { Panel, Table } from "../panel.js";
import { StepsDialog } from "./steps_dialog.js";

export function Runbooks({ machine, node, flow }) {
  const answer = useAnswer(() => get("/v1/runbooks?detail=true&limit=1000"), [node.uuid]);
  const [asked, setAsked] = useState(null);
  const fits = ({ traits }) => traits.some((trait) => node.traits.includes(trait));
  return html`<${Panel} title="Runbooks" icon="play" flush><${Answer} of=${answer}>${({ runbooks }) => {
    const fitting = runbooks.filter(fits);
    if (!fitting.length) return html`<div class="pad"><p class="quiet">${runbooks.length
      ? "None of the runbooks has a trait of this machine." : html`There are none; <a href=${href("automation",
        { kind: "runbooks" })}>Automation</a> makes them.`}</p></div>`;
    return html`<${Table} label="Runbooks" rows=${fitting} keyOf=${(one) => one.uuid} columns=${[
      ["Runbook", (one) => html`<strong>${one.name}</strong>`],
      ["Steps", (one) => one.steps.map((step) => `${step.interface}.${step.step}`).join(", ")],
      ["", (one) => one.description ?? ""],
      ["", (one) => html`<button class="button" disabled=${!flow} aria-label="Show the plan of ${one.name}"
        onClick=${() => setAsked(one)}>Show the plan…</button>`, "right"]]} />`;
  }}<//>
    ${asked && html`<${StepsDialog} title=${asked.name} does=${`Runs ${asked.steps.length === 1 ? "one step" : `${asked.steps.length} steps`}.`}
      machine=${machine} node=${node} flow=${flow} steps=${asked.steps} runbook=${asked.name} onClose=${() => setAsked(null)} />`}<//>`;
}
