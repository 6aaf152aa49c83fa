// SPDX-License-Identifier: Apache-2.0
// The audit log: every request that changed something or was refused, with its user, latest first. The
// journal shows what happened on machines; this page shows who requested it.

import { html } from "../../vendor/preact-htm.js";
import { ErrorNotice } from "../fetching.js";
import { Icon } from "../icons.js";
import { useObservable } from "../observable.js";
import { EmptyState, PageFrame } from "../page_parts.js";
import { usePagedSearch } from "../paged_search.js";
import { href, route, setQuery } from "../route.js";
import { date } from "../times.js";
import {
  OUTCOME_OPTIONS,
  TIME_OPTIONS,
  auditParameters,
  detailText,
  exportPath,
  outcomeLevel,
  requesterText,
} from "./query.js";

export function AuditLogPage() {
  const { query } = useObservable(route);
  const { entries, next, error, busy, loadMore } = usePagedSearch(query, {
    path: "/v1/ferrite/audit-log",
    marker: "marker",
    parameters: auditParameters,
  });
  const status = () => {
    if (busy) return html`<div class="loading" aria-label="Searching"></div>`;
    if (next) return html`<button class="button" onClick=${loadMore}>Show earlier entries</button>`;
    return entries.length > 0 && html`<span class="quiet">End of the audit log.</span>`;
  };
  return html`<${PageFrame} title="Audit log" class="audit-log" tools=${html`<a class="button" download="audit-log.jsonl"
      href=${exportPath(query, Date.now())}><${Icon} name="down" /> Export</a>`}>
    <${Filters} query=${query} />
    ${error && html`<${ErrorNotice} message=${error.message} />`}
    ${
      entries.length > 0 &&
      html`<ol class="audit-list" aria-label="Results">
      ${entries.map((entry) => html`<${AuditLine} key=${entry.id} entry=${entry} />`)}</ol>`
    }
    ${!busy && !entries.length && !error && html`<${EmptyState} title="No matching entries"><p>Requests that change something, and refused requests, are recorded here.</p><//>`}
    <div class="journal-end" role="status">${status()}</div><//>`;
}

/** @param {{ query: URLSearchParams }} props */
function Filters({ query }) {
  const set = (name) => (event) => setQuery({ [name]: event.currentTarget.value });
  const value = (name) => query.get(name) ?? "";
  const text = (name, label, placeholder) => html`<label class="field"><span>${label}</span>
    <input type="search" placeholder=${placeholder} value=${value(name)} onInput=${set(name)} /></label>`;
  const select = (name, label, options) => html`<label class="field"><span>${label}</span>
    <select value=${value(name)} onChange=${set(name)}>
    ${options.map(([id, title]) => html`<option key=${id} value=${id} selected=${id === value(name)}>${title}</option>`)}</select></label>`;
  return html`<div class="journal-filters" role="search" aria-label="Filters">
    ${select("outcome", "Outcome", OUTCOME_OPTIONS)}${text("user", "User", "name")}${text("project", "Project", "name")}
    ${text("resource", "Resource", "machine or UUID")}${text("request_id", "Request ID", "req-…")}
    ${text("address", "Address", "IP address")}${select("span", "Time", TIME_OPTIONS)}</div>`;
}

/** @param {{ entry: any }} props */
function AuditLine({ entry }) {
  const detail = detailText(entry);
  const roles = entry.roles?.length ? `roles ${entry.roles.join(", ")}` : "";
  const about = [roles, entry.auth_method, entry.address].filter(Boolean).join(" · ");
  const isNode = entry.resource_type === "node" && entry.resource_id;
  return html`<li class="audit-line ${entry.outcome === "accepted" ? "" : "bad"}" data-outcome=${entry.outcome}>
    <time class="number quiet" datetime=${entry.at}>${date(Date.parse(entry.at))}</time>
    <span class="badge ${outcomeLevel(entry.outcome)}">${entry.outcome} ${entry.status}</span>
    <span class="cut" title=${about}>${requesterText(entry)}</span>
    <span class="what"><strong>${entry.method}</strong> <code>${entry.path}</code>
      ${isNode && html` <a href=${href(`machines/${entry.resource_id}`)}>machine</a>`}
      ${detail && html` <span class="quiet">${detail}</span>`}</span>
    <span class="cut"><a class="mono" href=${href("journal", { trace: entry.request_id, kind: "all" })}
      title="Journal entries of request ${entry.request_id}">${entry.request_id}</a></span></li>`;
}
