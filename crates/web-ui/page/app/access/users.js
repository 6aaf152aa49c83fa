// SPDX-License-Identifier: Apache-2.0
// Users and service accounts: list, create, change roles, set passwords, end sessions, delete.

import { html, useState } from "../../vendor/preact-htm.js";
import { get, patch, post, put, remove } from "../api.js";
import { denial } from "../caller.js";
import { FetchResult, useFetch } from "../fetching.js";
import { FormDialog, RowButton, SelectField, TextField } from "../form_dialog.js";
import { Icon } from "../icons.js";
import { Table } from "../machine/panel.js";
import { EmptyState } from "../page_parts.js";
import { showError, showMessage } from "../toasts.js";
import { formatAssignments, parseAssignment, passwordProblem } from "./model.js";
import { RoleEditor, loadProjectNames } from "./roles.js";

const ALL = "/v1/ferrite/users";
/** @type {(user: { name: string }, rest?: string) => string} */
const userPath = ({ name }, rest = "") => `${ALL}/${encodeURIComponent(name)}${rest}`;

/** @param {{ known: any }} props */
export function Users({ known }) {
  const users = useFetch(async () => (await get(ALL)).users, []);
  const [dialog, setDialog] = useState(
    /** @type {{ kind: "edit" | "password" | "delete", user: any } | null} */ (null),
  );
  const open = (kind, user) => () => setDialog({ kind, user });
  const close = () => setDialog(null);
  const noCreate = denial(known, "ferrite:user:create");
  const noUpdate = denial(known, "ferrite:user:update");
  const noDelete = denial(known, "ferrite:user:delete");
  const endSessions = async (user) => {
    try {
      const { ended } = await remove(userPath(user, "/sessions"));
      showMessage(`Ended ${ended} sessions of ${user.name}.`);
    } catch (error) {
      showError(/** @type {Error} */ (error));
    }
  };
  const actions = (user) => html`<span class="row-actions">
    <${RowButton} label="Edit" name="Edit ${user.name}" reason=${noUpdate} onClick=${open("edit", user)} />
    ${
      user.kind === "human" &&
      html`<${RowButton} label="Password" name="Password of ${user.name}" reason=${noUpdate} onClick=${open("password", user)} />
      <${RowButton} label="End sessions" name="End sessions of ${user.name}" reason=${noUpdate} onClick=${() => endSessions(user)} />`
    }
    <${RowButton} label="Delete" name="Delete ${user.name}" reason=${noDelete} isDangerous onClick=${open("delete", user)} /></span>`;
  const columns = [...COLUMNS, ["Actions", actions, "right nowrap"]];
  return html`<div class="kind-head"><p class="quiet grow">People sign in with a password; service accounts use API tokens. A role applies
        to a project or to the whole system.</p>
      <button class="button primary" disabled=${!!noCreate} title=${noCreate ?? undefined} onClick=${open("edit", null)}>
        <${Icon} name="plus" /> New user</button></div>
    <${FetchResult} result=${users}>${(list) =>
      list.length === 0
        ? html`<${EmptyState} title="No users in the database"><p>Set <code>auth = "local"</code> to use them.</p><//>`
        : html`<section class="panel" aria-label="Users"><${Table} label="Users" rows=${list} keyOf=${(user) => user.id} columns=${columns} /></section>`}<//>
    ${dialog?.kind === "edit" && html`<${UserDialog} user=${dialog.user} onClose=${close} onSaved=${users.reload} />`}
    ${dialog?.kind === "password" && html`<${PasswordDialog} user=${dialog.user} onClose=${close} />`}
    ${dialog?.kind === "delete" && html`<${DeleteDialog} user=${dialog.user} onClose=${close} onDeleted=${users.reload} />`}`;
}

const COLUMNS = [
  [
    "Name",
    (user) => html`<strong>${user.name}</strong>
      ${user.kind === "service" && html` <span class="badge">service account</span>`}
      ${!user.enabled && html` <span class="badge warn">disabled</span>`}
      ${user.kind === "human" && !user.has_password && html` <span class="badge warn">no password</span>`}`,
  ],
  [
    "Roles",
    (user) =>
      user.roles.length
        ? user.roles.map((role) => html`<code key=${role}>${role}</code> `)
        : html`<span class="faint">none</span>`,
  ],
  ["Default project", (user) => user.default_project ?? html`<span class="faint">none</span>`],
  ["Description", (user) => user.description ?? ""],
];

/** @param {{ user: any, onClose: () => void, onSaved: () => void }} props */
function UserDialog({ user, onClose, onSaved }) {
  const projects = useFetch(loadProjectNames, []);
  const [form, setForm] = useState(() => ({
    name: "",
    kind: "human",
    password: "",
    description: user?.description ?? "",
    enabled: user?.enabled ?? true,
    default_project: user?.default_project ?? "",
    roles: (user?.roles ?? []).map(parseAssignment),
  }));
  const set = (field) => (value) => setForm({ ...form, [field]: value });
  const names = projects.data ?? [];
  const problem = user ? null : passwordProblem(form.password, "");
  const send = async () => {
    const fields = {
      description: form.description.trim() || null,
      enabled: form.enabled,
      default_project: form.default_project || null,
      roles: formatAssignments(form.roles),
    };
    if (user) await patch(userPath(user), fields);
    else {
      const hasPassword = form.kind === "human" && form.password;
      const identity = { name: form.name.trim(), kind: form.kind };
      await post(ALL, {
        ...identity,
        ...fields,
        ...(hasPassword ? { password: form.password } : {}),
      });
    }
    showMessage(user ? `Saved ${user.name}.` : `Created ${form.name.trim()}.`);
    onSaved();
  };
  return html`<${FormDialog} title=${user ? `Edit ${user.name}` : "New user"} submit=${user ? "Save" : "Create user"} problem=${problem}
    isReady=${!!user || !!form.name.trim()} onSubmit=${send} onClose=${onClose}>
    ${
      !user &&
      html`<${TextField} label="Name" value=${form.name} required onChange=${set("name")} />
      <${SelectField} label="Kind" value=${form.kind} options=${KINDS} onChange=${set("kind")} />
      ${form.kind === "human" && html`<${TextField} label="Initial password" type="password" autocomplete="new-password" value=${form.password} onChange=${set("password")} hint="Can be set later." />`}`
    }
    <${TextField} label="Description" value=${form.description} onChange=${set("description")} />
    <${RoleEditor} value=${form.roles} projects=${names} onChange=${set("roles")} />
    <${SelectField} label="Default project" value=${form.default_project} onChange=${set("default_project")}
      options=${[["", "none"], ...names.map((name) => [name, name])]} />
    <label class="check"><input type="checkbox" checked=${form.enabled} onChange=${(event) => set("enabled")(event.currentTarget.checked)} /> enabled</label><//>`;
}

/** @type {[string, string][]} */
const KINDS = [
  ["human", "person, with a password"],
  ["service", "service account, with API tokens"],
];

/** @param {{ user: any, onClose: () => void }} props */
function PasswordDialog({ user, onClose }) {
  const [form, setForm] = useState({ password: "", repeated: "" });
  const set = (field) => (value) => setForm({ ...form, [field]: value });
  const send = async () => {
    await put(userPath(user, "/password"), { password: form.password });
    showMessage(`Changed the password of ${user.name}.`);
  };
  return html`<${FormDialog} title="Password of ${user.name}" submit="Set password" problem=${passwordProblem(form.password, form.repeated)}
    isReady=${!!form.password && form.password === form.repeated} onSubmit=${send} onClose=${onClose}>
    <${TextField} label="New password" type="password" autocomplete="new-password" value=${form.password} onChange=${set("password")} />
    <${TextField} label="Repeat the new password" type="password" autocomplete="new-password" value=${form.repeated} onChange=${set("repeated")} />
    <p class="quiet">The sessions of ${user.name} end. API tokens stay valid.</p><//>`;
}

/** @param {{ user: any, onClose: () => void, onDeleted: () => void }} props */
function DeleteDialog({ user, onClose, onDeleted }) {
  const send = async () => {
    await remove(userPath(user));
    showMessage(`Deleted ${user.name}.`);
    onDeleted();
  };
  return html`<${FormDialog} title="Delete ${user.name}" submit="Delete" isDangerous onSubmit=${send} onClose=${onClose}>
    <p>The user is deleted with its roles, sessions and API tokens. Programs that use its tokens stop working.</p><//>`;
}
