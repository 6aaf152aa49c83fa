// SPDX-License-Identifier: Apache-2.0
// The machines that match a flavour, and assigning its resource class to them.

import { html, useState } from "../../vendor/preact-htm.js";
import { get, nodePath, patch } from "../api.js";
import { Dialog } from "../dialog.js";
import { FetchResult, useFetch } from "../fetching.js";
import { Table } from "../machine/panel.js";
import { href } from "../route.js";
import { count } from "../sizes.js";
import { showError, showMessage } from "../toasts.js";

/** @param {{ flavour: any, onClose: () => void }} props */
export function FlavourMatches({ flavour, onClose }) {
  const matches = useFetch(
    () => get(`/v1/ferrite/flavours/${encodeURIComponent(flavour.name)}/matches`),
    [flavour.name],
  );
  const [busy, setBusy] = useState(false);
  const rows = matches.data?.matches ?? [];
  const unassigned = rows.filter(
    (row) =>
      flavour.resource_class && row.decides_class && row.resource_class !== flavour.resource_class,
  );
  const assign = async () => {
    setBusy(true);
    let done = 0;
    const change = [{ op: "add", path: "/resource_class", value: flavour.resource_class }];
    for (const row of unassigned) {
      await patch(nodePath(row.node_uuid), change).then(() => {
        done += 1;
      }, showError);
    }
    showMessage(`Assigned class ${flavour.resource_class} to ${count(done, "machine")}.`);
    setBusy(false);
    matches.reload();
  };
  const footer = html`<span class="grow quiet">
    ${matches.data ? `${rows.length} of ${count(matches.data.inspected, "inspected machine")}` : ""}</span>
    ${
      unassigned.length > 0 &&
      html`<button class="button primary" data-confirm disabled=${busy} onClick=${assign}>
      Assign class ${flavour.resource_class} to ${count(unassigned.length, "machine")}</button>`
    }
    <button class="button" onClick=${onClose}>Close</button>`;
  return html`<${Dialog} title="Machines that match ${flavour.name}" class="wide" onClose=${onClose} footer=${footer}>
    <p class="quiet">The next inspection applies the flavour. A resource class that was set by hand is kept; assign it here to change it now.</p>
    <${FetchResult} result=${matches}>${() =>
      rows.length === 0
        ? html`<p>No inspected machine matches.</p>`
        : html`<${Table} label="Machines" rows=${rows} keyOf=${(row) => row.node_uuid} columns=${COLUMNS} />`}<//>
  <//>`;
}

const COLUMNS = [
  [
    "Machine",
    (row) => {
      const name = row.node_name ?? row.node_uuid;
      return html`<a href=${href(`machines/${name}`)}>${name}</a>`;
    },
  ],
  ["Current class", (row) => row.resource_class ?? html`<span class="faint">none</span>`],
  [
    "Determines the class",
    (row) =>
      row.decides_class ? "yes" : html`<span class="faint">no: another flavour has priority</span>`,
  ],
];
