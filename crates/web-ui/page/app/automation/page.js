// SPDX-License-Identifier: Apache-2.0
// The automation page: lists, creates, edits and removes flavours, deploy templates, runbooks and
// inspection rules.

import { html, useState } from "../../vendor/preact-htm.js";
import { caller, denial, matchesAnyRule } from "../caller.js";
import { Dialog } from "../dialog.js";
import { FetchResult, useFetch } from "../fetching.js";
import { RowButton } from "../form_dialog.js";
import { Icon } from "../icons.js";
import { Table } from "../machine/panel.js";
import { useObservable } from "../observable.js";
import { EmptyState } from "../page_parts.js";
import { route } from "../route.js";
import { Tabs } from "../tabs.js";
import { showError, showMessage } from "../toasts.js";
import { Editor } from "./editor.js";
import { FlavourMatches } from "./matches.js";
import { RESOURCE_KINDS } from "./resource_kinds.js";

export function AutomationPage() {
  const { query } = useObservable(route);
  const known = useObservable(caller);
  const kinds = RESOURCE_KINDS.filter(({ rules }) => matchesAnyRule(known, rules.list));
  const kind = kinds.find(({ id }) => id === query.get("kind")) ?? kinds[0];
  return html`<div class="page"><header class="bar"><h1>Automation</h1></header>
    <${Tabs} tabs=${kinds.map(({ id, label }) => [id, label])} selected=${kind.id} name="kind" label="Resource kinds">
      <${ResourceList} key=${kind.id} kind=${kind} /><//></div>`;
}

/** @param {{ kind: any }} props */
function ResourceList({ kind }) {
  const items = useFetch(kind.list, [kind.id]);
  const [dialog, setDialog] = useState(
    /** @type {{ kind: "edit" | "matches" | "remove", item: any } | null} */ (null),
  );
  const known = useObservable(caller);
  // Only runbooks have an owner.
  const reasonOf = (action, item) => denial(known, kind.rules[action], { owner: item?.owner });
  const noCreate = reasonOf("create", null);
  const open = (name, item) => () => setDialog({ kind: name, item });
  const close = () => setDialog(null);
  const columns = [
    [
      "Name",
      (item) =>
        reasonOf("update", item)
          ? html`<strong>${kind.nameOf(item)}</strong>`
          : html`<button class="link" onClick=${open("edit", item)}><strong>${kind.nameOf(item)}</strong></button>`,
    ],
    ...kind.columns,
    ["Actions", (item) => actions(item), "right nowrap"],
  ];
  const actions = (item) => html`<span class="row-actions">
      ${
        kind.hasMatches &&
        html`<button class="button plain" aria-label="Machines that match ${kind.nameOf(item)}"
        onClick=${open("matches", item)}>Matches…</button>`
      }
      <${RowButton} label="Edit" name="Edit ${kind.nameOf(item)}" reason=${reasonOf("update", item)} onClick=${open("edit", item)} />
      <${RowButton} label="Remove" name="Remove ${kind.nameOf(item)}" isDangerous reason=${reasonOf("remove", item)}
        onClick=${open("remove", item)} /></span>`;
  return html`<div class="kind-head"><p class="quiet grow">${kind.description}</p>
      <button class="button primary" disabled=${!!noCreate} title=${noCreate ?? undefined} onClick=${open("edit", null)}><${Icon} name="plus" /> New ${kind.singular}</button></div>
    <${FetchResult} result=${items}>${(list) =>
      list.length === 0
        ? html`<${EmptyState} title=${`No ${kind.label.toLowerCase()} yet`} />`
        : html`<section class="panel" aria-label=${kind.label}>
        <${Table} label=${kind.label} rows=${list} keyOf=${(item) => item.uuid ?? item.name} columns=${columns} /></section>`}<//>
    ${dialog?.kind === "edit" && html`<${Editor} kind=${kind} item=${dialog.item} onClose=${close} onSaved=${items.reload} />`}
    ${dialog?.kind === "matches" && html`<${FlavourMatches} flavour=${dialog.item} onClose=${close} />`}
    ${dialog?.kind === "remove" && html`<${RemoveDialog} kind=${kind} item=${dialog.item} onClose=${close} onRemoved=${items.reload} />`}`;
}

/** @param {{ kind: any, item: any, onClose: () => void, onRemoved: Function }} props */
function RemoveDialog({ kind, item, onClose, onRemoved }) {
  const [busy, setBusy] = useState(false);
  const perform = async () => {
    setBusy(true);
    try {
      await kind.remove(item);
      showMessage(`Removed ${kind.nameOf(item)}.`);
      onRemoved();
      onClose();
    } catch (error) {
      showError(/** @type {Error} */ (error));
      setBusy(false);
    }
  };
  return html`<${Dialog} title="Remove ${kind.nameOf(item)}" onClose=${onClose} footer=${html`<span class="grow"></span>
      <button class="button" onClick=${onClose}>Cancel</button>
        <button class="button danger" data-confirm disabled=${busy} onClick=${perform}>Remove</button>`}>
    <p>The ${kind.singular} is removed permanently. What it has set on machines stays.</p><//>`;
}
