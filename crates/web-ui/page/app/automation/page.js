// SPDX-License-Identifier: Apache-2.0
// Flavours, deploy templates, runbooks and inspection rules: listed, shown, made, changed, removed.

import { html, useState } from "../../vendor/preact-htm.js";
import { Dialog } from "../dialog.js";
import { Icon } from "../icons.js";
import { Answer, useAnswer } from "../loading.js";
import { Table } from "../machine/panel.js";
import { route, setQuery } from "../route.js";
import { Nothing, Sheet } from "../sections.js";
import { useSubject } from "../subject.js";
import { complain, say } from "../toasts.js";
import { Editor } from "./editor.js";
import { KINDS } from "./kinds.js";
import { Matches } from "./matches.js";

export function AutomationPage() {
  const { query } = useSubject(route);
  const kind = KINDS.find(({ id }) => id === query.get("kind")) ?? KINDS[0];
  const onKeyDown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = KINDS[(KINDS.indexOf(kind) + step + KINDS.length) % KINDS.length];
    setQuery({ kind: next.id });
    document.getElementById(`kind-${next.id}`)?.focus();
  };
  return html`<div class="sheet"><header class="bar"><h1>Automation</h1></header>
    <div class="tabs" role="tablist" aria-label="Kinds" onKeyDown=${onKeyDown}>
      ${KINDS.map(({ id, label }) => html`<button key=${id} id=${`kind-${id}`} role="tab"
      aria-selected=${id === kind.id} aria-controls="kind-panel" tabindex=${id === kind.id ? 0 : -1}
        onClick=${() => setQuery({ kind: id })}>${label}</button>`)}</div>
    <div class="sheet-body" id="kind-panel" role="tabpanel" aria-labelledby=${`kind-${kind.id}`} tabindex="0">
      <${Kind} key=${kind.id} kind=${kind} /></div></div>`;
}

function Kind({ kind }) {
  const answer = useAnswer(kind.list, [kind.id]);
  const [open, setOpen] = useState(null);
  const act = (what, one) => () => setOpen({ what, one });
  const close = () => setOpen(null);
  const columns = [
    ["Name", (one) => html`<button class="link" onClick=${act("edit", one)}><strong>${kind.nameOf(one)}</strong></button>`],
    ...kind.columns,
    ["Actions", (one) => html`<span class="row-actions">${kind.matches && html`<button class="button plain"
      aria-label="Machines that ${kind.nameOf(one)} fits" onClick=${act("matches", one)}>Fits…</button>`}
      <button class="button plain" aria-label="Edit ${kind.nameOf(one)}" onClick=${act("edit", one)}>Edit</button>
      <button class="button plain danger-text" aria-label="Remove ${kind.nameOf(one)}"
        onClick=${act("remove", one)}>Remove</button></span>`, "right nowrap"]];
  return html`<div class="kind-head"><p class="quiet grow">${kind.does}</p>
      <button class="button primary" onClick=${act("edit", null)}><${Icon} name="plus" /> New ${kind.one}</button></div>
    <${Answer} of=${answer}>${(list) => (list.length === 0 ? html`<${Nothing} title=${`No ${kind.label.toLowerCase()} yet`} />`
      : html`<section class="panel" aria-label=${kind.label}>
        <${Table} label=${kind.label} rows=${list} keyOf=${(one) => one.uuid ?? one.name} columns=${columns} /></section>`)}<//>
    ${open?.what === "edit" && html`<${Editor} kind=${kind} one=${open.one} onClose=${close} onDone=${answer.again} />`}
    ${open?.what === "matches" && html`<${Matches} flavour=${open.one} onClose=${close} />`}
    ${open?.what === "remove" && html`<${Remove} kind=${kind} one=${open.one} onClose=${close} onDone=${answer.again} />`}`;
}

function Remove({ kind, one, onClose, onDone }) {
  const [busy, setBusy] = useState(false);
  const perform = () => {
    setBusy(true);
    kind.remove(one).then(() => { say(`${kind.nameOf(one)} is removed.`); onDone(); onClose(); },
      (error) => { complain(error); setBusy(false); });
  };
  return html`<${Dialog} title="Remove ${kind.nameOf(one)}" onClose=${onClose} footer=${html`<span class="grow"></span>
      <button class="button" onClick=${onClose}>Cancel</button>
        <button class="button danger" data-confirm disabled=${busy} onClick=${perform}>Remove</button>`}>
    <p>The ${kind.one} is gone for good. Machines keep what it has given them.</p><//>`;
}
