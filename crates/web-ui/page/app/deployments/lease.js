// SPDX-License-Identifier: Apache-2.0
// Extends or changes the lease of a deployment.

import { html, useState } from "../../vendor/preact-htm.js";
import { patch } from "../api.js";
import { FormDialog, SelectField, TextField } from "../form_dialog.js";
import { date } from "../times.js";
import { showMessage } from "../toasts.js";
import { END_ACTIONS, LEASE_UNITS, leaseChange, leaseSeconds, nameOf } from "./model.js";

/** @param {{ deployment: any, onClose: () => void, onSaved: () => void }} props */
export function LeaseDialog({ deployment, onClose, onSaved }) {
  const { lease, uuid } = deployment;
  const name = nameOf(deployment);
  const [form, setForm] = useState({
    mode: lease.expires_at ? "extend" : "from_now",
    number: "7",
    unit: "86400",
    atEnd: lease.at_end,
  });
  const set = (field) => (value) => setForm({ ...form, [field]: value });
  const hasTime = form.mode !== "unlimited";
  const problem =
    hasTime && !leaseSeconds(form.number, form.unit) ? "Enter a positive number." : null;
  const send = async () => {
    const changed = await patch(
      `/v1/ferrite/deployments/${encodeURIComponent(uuid)}`,
      leaseChange(form),
    );
    const end = changed.lease.expires_at;
    showMessage(
      end
        ? `The lease of ${name} ends ${date(Date.parse(end))}.`
        : `The lease of ${name} has no end.`,
    );
    onSaved();
  };
  /** @type {[string, string][]} */
  const modes = [
    ...(lease.expires_at
      ? /** @type {[string, string][]} */ ([["extend", "extend from its end"]])
      : []),
    ["from_now", "end after a time from now"],
    ["unlimited", "no end"],
  ];
  return html`<${FormDialog} title="Lease of ${name}" submit="Save" problem=${problem} onSubmit=${send} onClose=${onClose}>
    <p class="quiet">${lease.expires_at ? `The lease ends ${date(Date.parse(lease.expires_at))}.` : "The lease has no end."}</p>
    <${SelectField} label="Change" value=${form.mode} options=${modes} onChange=${set("mode")} />
    ${
      hasTime &&
      html`<div class="settings"><${TextField} label="Time" value=${form.number} onChange=${set("number")} />
      <${SelectField} label="Unit" value=${form.unit} options=${LEASE_UNITS} onChange=${set("unit")} /></div>
      <${SelectField} label="At the end" value=${form.atEnd} options=${END_ACTIONS} onChange=${set("atEnd")} />`
    }<//>`;
}
