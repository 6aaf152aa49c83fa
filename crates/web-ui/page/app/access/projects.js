// SPDX-License-Identifier: Apache-2.0
// Projects and their quotas: list, create, change, delete.

import { html, useState } from "../../vendor/preact-htm.js";
import { get, patch, post, put, remove } from "../api.js";
import { denial, matchesAnyRule } from "../caller.js";
import { FetchResult, useFetch } from "../fetching.js";
import { FormDialog, RowButton, TextField } from "../form_dialog.js";
import { Icon } from "../icons.js";
import { Table } from "../machine/panel.js";
import { EmptyState } from "../page_parts.js";
import { date } from "../times.js";
import { showMessage } from "../toasts.js";
import { formatQuotas, parseQuotas } from "./model.js";

const ALL = "/v1/ferrite/projects";
/** @type {(name: string) => string} */
const projectPath = (name) => `${ALL}/${encodeURIComponent(name)}`;
/** @type {(name: string) => string} */
const quotaPath = (name) => `/v1/ferrite/quotas/${encodeURIComponent(name)}`;

/** @param {any} known */
async function loadProjects(known) {
  const seesQuotas = matchesAnyRule(known, ["ferrite:quota:list_all", "ferrite:quota:get"]);
  const [{ projects }, { quotas }] = await Promise.all([
    get(ALL),
    seesQuotas ? get("/v1/ferrite/quotas") : { quotas: [] },
  ]);
  const byProject = new Map(quotas.map((quota) => [quota.project, quota.limits]));
  return projects.map((project) => ({ ...project, limits: byProject.get(project.name) ?? [] }));
}

/** @param {{ known: any }} props */
export function Projects({ known }) {
  const projects = useFetch(() => loadProjects(known), []);
  const [dialog, setDialog] = useState(
    /** @type {{ kind: "edit" | "quota" | "delete", project: any } | null} */ (null),
  );
  const open = (kind, project) => () => setDialog({ kind, project });
  const close = () => setDialog(null);
  const noCreate = denial(known, "ferrite:project:create");
  const noUpdate = denial(known, "ferrite:project:update");
  const noDelete = denial(known, "ferrite:project:delete");
  const noQuota = denial(known, "ferrite:quota:update");
  const actions = (project) => html`<span class="row-actions">
    <${RowButton} label="Edit" name="Edit ${project.name}" reason=${noUpdate} onClick=${open("edit", project)} />
    <${RowButton} label="Quota" name="Quota of ${project.name}" reason=${noQuota} onClick=${open("quota", project)} />
    <${RowButton} label="Delete" name="Delete ${project.name}" reason=${noDelete} isDangerous onClick=${open("delete", project)} /></span>`;
  return html`<div class="kind-head"><p class="quiet grow">A project owns or leases machines: its name is their <code>owner</code> or <code>lessee</code>.</p>
      <button class="button primary" disabled=${!!noCreate} title=${noCreate ?? undefined} onClick=${open("edit", null)}>
        <${Icon} name="plus" /> New project</button></div>
    <${FetchResult} result=${projects}>${(list) =>
      list.length === 0
        ? html`<${EmptyState} title="No projects yet" />`
        : html`<section class="panel" aria-label="Projects"><${Table} label="Projects" rows=${list} keyOf=${(project) => project.name}
            columns=${[...COLUMNS, ["Actions", actions, "right nowrap"]]} /></section>`}<//>
    ${dialog?.kind === "edit" && html`<${ProjectDialog} project=${dialog.project} onClose=${close} onSaved=${projects.reload} />`}
    ${dialog?.kind === "quota" && html`<${QuotaDialog} project=${dialog.project} onClose=${close} onSaved=${projects.reload} />`}
    ${dialog?.kind === "delete" && html`<${DeleteDialog} project=${dialog.project} onClose=${close} onDeleted=${projects.reload} />`}`;
}

const COLUMNS = [
  [
    "Name",
    (project) => html`<strong>${project.name}</strong>
      ${!project.enabled && html` <span class="badge warn">disabled</span>`}`,
  ],
  ["Description", (project) => project.description ?? ""],
  [
    "Quota",
    (project) =>
      project.limits.length === 0
        ? html`<span class="faint">no limit</span>`
        : project.limits.map(
            ({ subject, machines, used }) =>
              html`<div key=${subject} class=${used >= machines ? "warn-text" : ""}>${subject}: ${used} of ${machines}</div>`,
          ),
  ],
  ["Created", (project) => date(Date.parse(project.created_at))],
];

/** @param {{ project: any, onClose: () => void, onSaved: () => void }} props */
function ProjectDialog({ project, onClose, onSaved }) {
  const [form, setForm] = useState({
    name: "",
    description: project?.description ?? "",
    enabled: project?.enabled ?? true,
  });
  const set = (field) => (value) => setForm({ ...form, [field]: value });
  const name = project?.name ?? form.name.trim();
  const send = async () => {
    const fields = { description: form.description.trim() || null, enabled: form.enabled };
    if (project) await patch(projectPath(name), fields);
    else await post(ALL, { name, ...fields });
    showMessage(project ? `Saved ${name}.` : `Created ${name}.`);
    onSaved();
  };
  return html`<${FormDialog} title=${project ? `Edit ${name}` : "New project"} submit=${project ? "Save" : "Create project"} isReady=${!!name}
    onSubmit=${send} onClose=${onClose}>
    ${!project && html`<${TextField} label="Name" value=${form.name} required onChange=${set("name")} hint="It cannot be changed later." />`}
    <${TextField} label="Description" value=${form.description} onChange=${set("description")} />
    <label class="check"><input type="checkbox" checked=${form.enabled} onChange=${(event) => set("enabled")(event.currentTarget.checked)} />
      enabled: roles in a disabled project are ignored</label><//>`;
}

/** @param {{ project: any, onClose: () => void, onSaved: () => void }} props */
function QuotaDialog({ project, onClose, onSaved }) {
  const [text, setText] = useState(() => formatQuotas(project.limits));
  const { value, problem } = parseQuotas(text);
  const send = async () => {
    if (Object.keys(value).length) await put(quotaPath(project.name), value);
    else await remove(quotaPath(project.name));
    showMessage(`Saved the quota of ${project.name}.`);
    onSaved();
  };
  return html`<${FormDialog} title="Quota of ${project.name}" submit="Save" problem=${problem} onSubmit=${send} onClose=${onClose}>
    <${TextField} label="Machines, one limit per line" rows=${6} value=${text} onChange=${setText}
      placeholder=${"machines = 10\nresource_class:gpu = 2\nflavour:large = 4"} />
    <p class="quiet">Without a limit, the project can have any number of machines. Machines that it already has are not affected.</p><//>`;
}

/** @param {{ project: any, onClose: () => void, onDeleted: () => void }} props */
function DeleteDialog({ project, onClose, onDeleted }) {
  const send = async () => {
    await remove(projectPath(project.name));
    showMessage(`Deleted ${project.name}.`);
    onDeleted();
  };
  return html`<${FormDialog} title="Delete ${project.name}" submit="Delete" isDangerous onSubmit=${send} onClose=${onClose}>
    <p>The project is deleted with the roles in it. A project that owns or leases machines cannot be deleted.</p><//>`;
}
