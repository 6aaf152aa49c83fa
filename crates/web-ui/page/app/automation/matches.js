// SPDX-License-Identifier: Apache-2.0
// Which machines a flavour fits, and giving those their class that have none of it yet.

import { html, useState } from "../../vendor/preact-htm.js";
import { get, nodePath, patch } from "../api.js";
import { Dialog } from "../dialog.js";
import { Answer, useAnswer } from "../loading.js";
import { Table } from "../machine/panel.js";
import { href } from "../route.js";
import { count } from "../sizes.js";
import { complain, say } from "../toasts.js";

export function Matches({ flavour, onClose }) {
  const answer = useAnswer(() => get(`/v1/ferrite/flavours/${encodeURIComponent(flavour.name)}/matches`), [flavour.name]);
  const [busy, setBusy] = useState(false);
  const rows = answer.data?.matches ?? [];
  const lacking = rows.filter((row) => flavour.resource_class && row.decides_class && row.resource_class !== flavour.resource_class);
  const assign = async () => {
    setBusy(true);
    let done = 0;
    for (const row of lacking) {
      await patch(nodePath(row.node_uuid), [{ op: "add", path: "/resource_class",
        value: flavour.resource_class }]).then(() => { done += 1; }, complain);
    }
    say(`${count(done, "machine")} got the class ${flavour.resource_class}.`);
    setBusy(false);
    answer.again();
  };
  const footer = html`<span class="grow quiet">
    ${answer.data ? `${rows.length} of ${count(answer.data.inspected, "inspected machine")}` : ""}</span>
    ${lacking.length > 0 && html`<button class="button primary" data-confirm disabled=${busy} onClick=${assign}>
      Give ${count(lacking.length, "machine")} the class ${flavour.resource_class}</button>`}
    <button class="button" onClick=${onClose}>Close</button>`;
  return html`<${Dialog} title="Machines that ${flavour.name} fits" class="wide" onClose=${onClose} footer=${footer}>
    <p class="quiet">The next inspection gives machines what their flavours say. A class that somebody wrote by hand stays; here it can be changed now.</p>
    <${Answer} of=${answer}>${() => (rows.length === 0 ? html`<p>It fits none of the machines that were inspected.</p>`
      : html`<${Table} label="Machines" rows=${rows} keyOf=${(row) => row.node_uuid} columns=${[
        ["Machine", (row) => html`<a href=${href(`machines/${row.node_name ?? row.node_uuid}`)}>${row.node_name ?? row.node_uuid}
          </a>`],
        ["Class now", (row) => row.resource_class ?? html`<span class="faint">none</span>`],
        ["This flavour decides", (row) => (row.decides_class ? "yes" : html`<span
          class="faint">no: another comes first</span>`)]]} />`)}<//>
  <//>`;
}
