// SPDX-License-Identifier: Apache-2.0
// The form of a new deployment: machine, image, access and lease.

import { html, useState } from "../../vendor/preact-htm.js";
import { get, post } from "../api.js";
import { matchesRule } from "../caller.js";
import { useFetch } from "../fetching.js";
import { FormDialog, SelectField, TextField } from "../form_dialog.js";
import { showMessage } from "../toasts.js";
import {
  EMPTY_FORM,
  END_ACTIONS,
  LEASE_UNITS,
  deploymentRequest,
  formProblem,
  isComplete,
} from "./model.js";

/**
 * Flavours and projects to select from; those that the caller may not list are empty.
 * @param {any} known
 */
async function loadChoices(known) {
  const choosesProject = known?.scope !== "project";
  const [flavours, projects] = await Promise.all([
    get("/v1/ferrite/flavours").then(
      (body) => body.flavours.map(({ name }) => name),
      () => [],
    ),
    choosesProject && matchesRule(known, "ferrite:project:list_all")
      ? get("/v1/ferrite/projects").then(
          (body) => body.projects.map(({ name }) => name),
          () => [],
        )
      : [],
  ]);
  return { flavours, projects };
}

/** @param {{ known: any, onClose: () => void, onCreated: () => void }} props */
export function NewDeploymentDialog({ known, onClose, onCreated }) {
  const choices = useFetch(() => loadChoices(known), []);
  const [form, setForm] = useState(EMPTY_FORM);
  const set = (field) => (value) => setForm({ ...form, [field]: value });
  const { flavours = [], projects = [] } = choices.data ?? {};
  const select = (none, names) => [["", none], ...names.map((name) => [name, name])];
  const send = async () => {
    const created = await post("/v1/ferrite/deployments", deploymentRequest(form));
    showMessage(`Requested deployment ${created.name ?? created.uuid}.`);
    onCreated();
  };
  return html`<${FormDialog} title="New deployment" class="wide" submit="Deploy" problem=${formProblem(form)} isReady=${isComplete(form)}
    onSubmit=${send} onClose=${onClose}>
    <div class="settings">
      <${TextField} label="Name" value=${form.name} onChange=${set("name")} placeholder="web-1" hint="Also the host name." />
      ${
        known?.scope === "project"
          ? html`<div class="field"><span>Project</span><strong>${known.project}</strong></div>`
          : html`<${SelectField} label="Project" value=${form.project} onChange=${set("project")} options=${select("none", projects)} />`
      }
    </div>
    <fieldset><legend>Machine: at least one of flavour, resource class and names</legend><div class="settings">
      ${flavours.length > 0 && html`<${SelectField} label="Flavour" value=${form.flavour} onChange=${set("flavour")} options=${select("any", flavours)} />`}
      <${TextField} label="Resource class" value=${form.resourceClass} onChange=${set("resourceClass")} placeholder="baremetal.large" />
      <${TextField} label="Required traits" value=${form.traits} onChange=${set("traits")} placeholder="CUSTOM_GPU CUSTOM_NVME" />
      <${TextField} label="One of these machines" value=${form.nodes} onChange=${set("nodes")} placeholder="names or UUIDs" /></div></fieldset>
    <fieldset><legend>Image</legend><div class="settings">
      <${TextField} label="Image URL" type="text" value=${form.image} required onChange=${set("image")} placeholder="https://images.example/debian-12.qcow2" />
      <${TextField} label="Checksum, or URL of a checksum file" value=${form.checksum} onChange=${set("checksum")} placeholder="SHA-256, SHA-512 or URL" /></div></fieldset>
    <${TextField} label="SSH keys, one per line" rows=${3} value=${form.keys} onChange=${set("keys")} placeholder="ssh-ed25519 AAAA… me@laptop" />
    <details><summary class="quiet">User data</summary>
      <${TextField} label="User data: a script or cloud-config" rows=${6} value=${form.userData} onChange=${set("userData")}
        hint="Stored encrypted and not shown again." /></details>
    <fieldset><legend>Lease</legend><div class="settings">
      <${TextField} label="Time" value=${form.leaseNumber} onChange=${set("leaseNumber")} placeholder="no end" />
      <${SelectField} label="Unit" value=${form.leaseUnit} options=${LEASE_UNITS} onChange=${set("leaseUnit")} />
      <${SelectField} label="At the end" value=${form.atEnd} options=${END_ACTIONS} onChange=${set("atEnd")} /></div></fieldset><//>`;
}
