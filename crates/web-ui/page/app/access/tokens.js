// SPDX-License-Identifier: Apache-2.0
// API tokens: list, create, revoke. A new token is shown once.

import { html, useRef, useState } from "../../vendor/preact-htm.js";
import { get, post, remove } from "../api.js";
import { denial, matchesRule } from "../caller.js";
import { Dialog } from "../dialog.js";
import { FetchResult, useFetch } from "../fetching.js";
import { FormDialog, RowButton, SelectField, TextField } from "../form_dialog.js";
import { Icon } from "../icons.js";
import { Table } from "../machine/panel.js";
import { EmptyState } from "../page_parts.js";
import { ago, date } from "../times.js";
import { showMessage } from "../toasts.js";
import {
  DEFAULT_LIFETIME,
  LIFETIMES,
  ROLES,
  SYSTEM,
  hasAccount,
  tokenLimit,
  tokenRequest,
} from "./model.js";
import { loadProjectNames } from "./roles.js";

const ALL = "/v1/ferrite/tokens";

/** @param {{ known: any }} props */
export function Tokens({ known }) {
  const tokens = useFetch(async () => (await get(ALL)).tokens, []);
  const [isCreating, setCreating] = useState(false);
  const [created, setCreated] = useState(/** @type {any} */ (null));
  const [revoked, setRevoked] = useState(/** @type {any} */ (null));
  const mayCreateForOthers = matchesRule(known, "ferrite:token:create");
  const noCreate = denial(known, hasAccount(known) ? "ferrite:token:own" : "ferrite:token:create");
  const noRevoke = (token) =>
    token.user === known?.user && hasAccount(known) ? null : denial(known, "ferrite:token:delete");
  const actions = (
    token,
  ) => html`<${RowButton} label="Revoke" name="Revoke ${token.prefix}" isDangerous reason=${noRevoke(token)}
    onClick=${() => setRevoked(token)} />`;
  const columns = [...COLUMNS, ["Actions", actions, "right nowrap"]];
  return html`<div class="kind-head"><p class="quiet grow">A token authenticates a program, with the roles of its user. Send it as
        <code>Authorization: Bearer</code> or <code>X-Auth-Token</code>.</p>
      <button class="button primary" disabled=${!!noCreate} title=${noCreate ?? undefined} onClick=${() => setCreating(true)}>
        <${Icon} name="plus" /> New token</button></div>
    <${FetchResult} result=${tokens}>${(list) =>
      list.length === 0
        ? html`<${EmptyState} title="No API tokens yet" />`
        : html`<section class="panel" aria-label="API tokens"><${Table} label="API tokens" rows=${list} keyOf=${(token) => token.id} columns=${columns} /></section>`}<//>
    ${
      isCreating &&
      html`<${NewTokenDialog} known=${known} forOthers=${mayCreateForOthers} onClose=${() => setCreating(false)}
      onCreated=${(token) => {
        setCreated(token);
        tokens.reload();
      }} />`
    }
    ${created && html`<${SecretDialog} token=${created} onClose=${() => setCreated(null)} />`}
    ${revoked && html`<${RevokeDialog} token=${revoked} onClose=${() => setRevoked(null)} onRevoked=${tokens.reload} />`}`;
}

const COLUMNS = [
  ["Token", (token) => html`<code>${token.prefix}…</code>`],
  ["User", (token) => token.user ?? html`<span class="faint">unknown</span>`],
  ["Description", (token) => token.description],
  ["Limited to", (token) => tokenLimit(token)],
  [
    "Last used",
    (token) =>
      token.last_used_at
        ? html`<span title=${date(Date.parse(token.last_used_at))}>${ago(Date.parse(token.last_used_at))}</span>`
        : html`<span class="faint">never</span>`,
  ],
  ["Expires", (token) => expiry(token.expires_at)],
];

/** @param {string | null} text */
function expiry(text) {
  if (!text) return html`<span class="badge warn">never</span>`;
  const timestamp = Date.parse(text);
  return timestamp > Date.now()
    ? date(timestamp)
    : html`<span class="badge bad" title=${date(timestamp)}>expired</span>`;
}

/** @param {{ known: any, forOthers: boolean, onClose: () => void, onCreated: (token: any) => void }} props */
function NewTokenDialog({ known, forOthers, onClose, onCreated }) {
  const mayListUsers = forOthers && matchesRule(known, "ferrite:user:get");
  const choices = useFetch(
    async () => ({
      users: mayListUsers ? (await get("/v1/ferrite/users")).users.map(({ name }) => name) : [],
      projects: await loadProjectNames().catch(() => []),
    }),
    [],
  );
  const own = hasAccount(known) ? (known.user ?? "") : "";
  const [form, setForm] = useState({
    user: own,
    description: "",
    lifetime: DEFAULT_LIFETIME,
    role: "",
    scope: "",
  });
  const set = (field) => (value) => setForm({ ...form, [field]: value });
  const { users = [], projects = [] } = choices.data ?? {};
  const names = [...new Set([own, ...users].filter(Boolean))];
  const send = async () => onCreated(await post(ALL, tokenRequest(form)));
  return html`<${FormDialog} title="New API token" submit="Create token" isReady=${!!form.user} onSubmit=${send} onClose=${onClose}>
    ${
      forOthers &&
      html`<${SelectField} label="User" value=${form.user} onChange=${set("user")}
      options=${[...(own ? [] : [["", "Select…"]]), ...names.map((name) => [name, name])]} />`
    }
    <${TextField} label="Description" value=${form.description} placeholder="what uses the token" onChange=${set("description")} />
    <${SelectField} label="Expires after" value=${form.lifetime} options=${LIFETIMES} onChange=${set("lifetime")} />
    <${SelectField} label="Limit to a role" value=${form.role} onChange=${set("role")}
      options=${[["", "all roles of the user"], ...ROLES.map((role) => [role, role])]} />
    <${SelectField} label="Limit to a scope" value=${form.scope} onChange=${set("scope")}
      options=${[["", "all scopes of the user"], ...[SYSTEM, ...projects].map((scope) => [scope, scope])]} /><//>`;
}

/**
 * The secret of a new token, with a button that copies it.
 * @param {{ token: any, onClose: () => void }} props
 */
function SecretDialog({ token, onClose }) {
  const field = useRef();
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    field.current.select();
    try {
      await navigator.clipboard.writeText(token.token);
      setCopied(true);
    } catch {
      // Browsers have no clipboard access over plain HTTP: the selected text can be copied by hand.
      showMessage("The browser denied access to the clipboard. Copy the selected text.", "bad");
    }
  };
  const footer = html`<span class="grow"></span><button class="button primary" data-confirm onClick=${onClose}>Done</button>`;
  return html`<${Dialog} title="New token of ${token.user}" onClose=${onClose} footer=${footer}>
    <div class="notice warn"><${Icon} name="warning" /><span>Copy the token now. It is not shown again.</span></div>
    <div class="secret"><input ref=${field} type="text" class="mono" readonly aria-label="Token" data-secret value=${token.token}
        onFocus=${(event) => event.currentTarget.select()} />
      <button class="button" onClick=${copy}><${Icon} name=${isCopied ? "check" : "link"} /> ${isCopied ? "Copied" : "Copy"}</button></div>
    <p class="quiet">${token.expires_at ? `Expires ${date(Date.parse(token.expires_at))}.` : "Never expires."}</p><//>`;
}

/** @param {{ token: any, onClose: () => void, onRevoked: () => void }} props */
function RevokeDialog({ token, onClose, onRevoked }) {
  const send = async () => {
    await remove(`${ALL}/${encodeURIComponent(token.id)}`);
    showMessage(`Revoked ${token.prefix}….`);
    onRevoked();
  };
  return html`<${FormDialog} title="Revoke ${token.prefix}…" submit="Revoke" isDangerous onSubmit=${send} onClose=${onClose}>
    <p>Programs that use this token of ${token.user ?? "an unknown user"} stop working at once.
      ${token.description && ` Description: ${token.description}`}</p><//>`;
}
