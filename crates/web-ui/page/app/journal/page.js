// SPDX-License-Identifier: Apache-2.0
// The journal page: searches the journal of all machines, from the latest entry back. The filters are
// part of the address; each entry links to its place in the machine's timeline.

import { html } from "../../vendor/preact-htm.js";
import { ErrorNotice } from "../fetching.js";
import { LANES, describe, laneLabel } from "../machine/timeline/entries.js";
import { useObservable } from "../observable.js";
import { EmptyState, PageFrame, SearchField } from "../page_parts.js";
import { usePagedSearch } from "../paged_search.js";
import { href, route, setQuery } from "../route.js";
import { Dot } from "../states.js";
import { date, preciseClock } from "../times.js";
import { KIND_OPTIONS, TIME_OPTIONS, journalParameters } from "./query.js";

export function JournalPage() {
  const { query } = useObservable(route);
  const { entries, next, reached, error, busy, loadMore } = usePagedSearch(query, {
    path: "/v1/ferrite/journal",
    marker: "before",
    parameters: journalParameters,
  });
  const status = () => {
    if (busy) return html`<div class="loading" aria-label="Searching"></div>`;
    if (next)
      return html`<button class="button" onClick=${loadMore}>Search earlier entries</button>
        <span class="quiet">searched back to ${date(Date.parse(reached ?? ""))}</span>`;
    return entries.length > 0 && html`<span class="quiet">End of the journal.</span>`;
  };
  return html`<${PageFrame} title="Journal" class="journal"
    tools=${html`<${SearchField} name="text" value=${query.get("text") ?? ""} label="Search the journal"
      placeholder="verb, field, error…" />`}>
    <${Filters} query=${query} />
    ${error && html`<${ErrorNotice} message=${error.message} />`}
    ${
      entries.length > 0 &&
      html`<ol class="journal-list" aria-label="Results">
      ${entries.map((entry) => html`<${JournalLine} key=${entry.seq} entry=${entry} />`)}</ol>`
    }
    ${
      !busy &&
      !entries.length &&
      !error &&
      html`<${EmptyState} title="No matching entries">
      ${reached && html`<p>Searched back to ${date(Date.parse(reached))}.</p>`}<//>`
    }
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
    ${options.map(([id, title]) => html`<option key=${id} value=${id}>${title}</option>`)}</select></label>`;
  const time = (name, label) => html`<label class="field"><span>${label}</span>
    <input type="datetime-local" value=${value(name)} onInput=${set(name)} /></label>`;
  return html`<div class="journal-filters" role="search" aria-label="Filters">
    ${text("actor", "Actor", "user, conductor, address")}${text("node", "Machine", "name or UUID")}
    ${select("kind", "Event", KIND_OPTIONS)}${select("span", "Time", TIME_OPTIONS)}
    ${value("span") === "own" && html`${time("from", "From")}${time("to", "To")}`}
    ${text("trace", "Request ID", "req-…")}</div>`;
}

/** @param {{ entry: JournalEntry }} props */
function JournalLine({ entry }) {
  const { lane, title, detail, isError, state } = describe(entry);
  const timestamp = Date.parse(entry.at);
  const machine = entry.node_name ?? entry.node_uuid;
  const requestId = entry.actor.request_id;
  const hasColour = LANES.some(({ id }) => id === lane);
  return html`<li class="journal-entry ${isError ? "bad" : ""} ${hasColour ? `lane-${lane}` : ""}" data-seq=${entry.seq}>
    <a class="number" href=${href(`machines/${machine}`, { at: String(entry.seq) })} title="Show in the timeline of ${machine}">
      <time datetime=${entry.at}>${DAY.format(timestamp)} ${preciseClock(timestamp)}</time></a>
    <span class="cut" title=${machine}>${
      entry.node_name
        ? html`<a href=${href(`machines/${machine}`)}>${machine}</a>`
        : html`<code>${machine.slice(0, 8)}…</code>`
    }</span>
    <span class="cut quiet" title=${requestId ?? ""}>${
      requestId
        ? html`<button class="link" onClick=${() => setQuery({ trace: requestId, kind: "all" })}
      title="Show all entries of request ${requestId}">${actorName(entry.actor)}</button>`
        : actorName(entry.actor)
    }</span>
    <span class="lane">${laneLabel(lane)}</span>
    <span class="what">${state && html`<${Dot} state=${state} /> `}<strong>${title}</strong> <span class="quiet">${detail}</span></span></li>`;
}

/** @param {JournalActor} actor */
const actorName = ({ name, hostname, address, kind }) => name ?? hostname ?? address ?? kind;

const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
