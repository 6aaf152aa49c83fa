// SPDX-License-Identifier: Apache-2.0
// Who did what when, over all machines: the journal searched from the latest entry back. What is looked
// for stands in the address; each hit leads to its moment on the machine's timeline.

import { html, useEffect, useMemo, useRef, useState } from "../../vendor/preact-htm.js";
import { get } from "../api.js";
import { Icon } from "../icons.js";
import { LANES, describe, laneLabel } from "../machine/timeline/entries.js";
import { href, route, setQuery } from "../route.js";
import { Find, Nothing, Sheet } from "../sections.js";
import { Dot } from "../states.js";
import { useSubject } from "../subject.js";
import { date, fineClock } from "../times.js";

const PAGE = 100;
const ASK_AFTER_MS = 250;
/** What people do; the rest is what comes of it. */
const BY_PEOPLE = "asked,changed,enrolled,removed,maintenance";
const KINDS = [["", "What people did"], ["all", "Everything"], ["asked", "Asked for"], ["changed", "Changed fields"],
  ["enrolled,removed", "Enrolled, removed"], ["entered", "Changes of state"], ["failed", "Failures"], ["power", "Power"],
    ["maintenance", "Maintenance"],
  ["did,failed", "Steps and actions"], ["bmc_calls", "BMC calls"], ["waiting", "Waits"], ["seen", "DHCP, TFTP, HTTP, console"],
    ["heard,noted", "Agent and inspection"]];
const SPANS = [["", "Any time"], ["3600", "Last hour"], ["86400", "Last day"], ["604800", "Last week"], ["own", "Between…"]];
const FILTERS = ["text", "actor", "node", "trace"];

export function AuditPage() {
  const { query } = useSubject(route);
  const asked = useMemo(() => parameters(query), [String(query)]);
  const [found, setFound] = useState({ entries: [], next: undefined, reached: null, error: null });
  const [busy, setBusy] = useState(true);
  const latest = useRef();
  latest.current = asked;
  const look = (before) => {
    setBusy(true);
    return get(`/v1/ferrite/journal?${new URLSearchParams({ ...asked(), limit: PAGE, ...(before ? { before } : {}) })}`);
  };
  useEffect(() => {
    let isCurrent = true;
    setBusy(true);
    const timer = setTimeout(() => look(null).then((answer) => isCurrent && setFound({ ...answer, error: null }),
      (error) => isCurrent && setFound({ entries: [], next: null, reached: null,
        error })).finally(() => isCurrent && setBusy(false)), ASK_AFTER_MS);
    return () => { isCurrent = false; clearTimeout(timer); };
  }, [asked]);
  const more = () => {
    const isCurrent = () => latest.current === asked;
    return look(found.next).then((answer) => isCurrent() && setFound((before) => ({ ...answer,
      entries: [...before.entries, ...answer.entries], error: null })),
      (error) => isCurrent() && setFound((before) => ({ ...before, error }))).finally(() => isCurrent() && setBusy(false));
  };
  return html`<${Sheet} title="Audit" class="audit"
    tools=${html`<${Find} name="text" value=${query.get("text") ?? ""} label="Find in what happened"
      placeholder="What happened: a verb, a field, an error…" />`}>
    <${Filters} query=${query} />
    ${found.error && html`<div class="notice bad" role="alert"><${Icon} name="warning" /><span>${found.error.message}</span></div>`}
    ${found.entries.length > 0 && html`<ol class="audit-list" aria-label="Found">
      ${found.entries.map((entry) => html`<${Hit} key=${entry.seq} entry=${entry} />`)}</ol>`}
    ${!busy && !found.entries.length && !found.error && html`<${Nothing} title="Nothing found">
      ${found.reached && html`<p>Looked back to ${date(Date.parse(found.reached))}.</p>`}<//>`}
    <div class="audit-end" role="status">${busy ? html`<div class="loading" aria-label="Searching">
      </div>` : found.next ? html`<button class="button" onClick=${more}>
      Look further back</button> <span class="quiet">so far to ${date(Date.parse(found.reached))}
        </span>` : found.entries.length > 0 && html`<span class="quiet">That is all the journal has.</span>`}</div><//>`;
}

/** Makes what the server is asked; "the last hour" is counted from when it is asked. */
function parameters(query) {
  const fixed = Object.fromEntries(FILTERS.map((name) => [name, query.get(name)?.trim()]).filter(([, value]) => value));
  const kind = query.get("kind") || BY_PEOPLE;
  if (kind !== "all") fixed.kind = kind;
  const span = query.get("span") ?? "";
  // An address may say anything; a moment that is none is left out.
  const moment = (name) => (Number.isNaN(Date.parse(query.get(name))) ? null : new Date(query.get(name)).toISOString());
  return () => {
    if (Number(span) > 0) return { ...fixed, from: new Date(Date.now() - Number(span) * 1000).toISOString() };
    const [from, to] = span === "own" ? [moment("from"), moment("to")] : [null, null];
    return { ...fixed, ...(from ? { from } : {}), ...(to ? { to } : {}) };
  };
}

function Filters({ query }) {
  const set = (name) => (event) => setQuery({ [name]: event.currentTarget.value });
  const field = (name, label, placeholder) => html`<label class="field"><span>${label}</span>
    <input type="search" placeholder=${placeholder}
    value=${query.get(name) ?? ""} onInput=${set(name)} /></label>`;
  const choice = (name, label, options) => html`<label class="field"><span>${label}</span>
    <select value=${query.get(name) ?? ""} onChange=${set(name)}>
    ${options.map(([value, words]) => html`<option key=${value} value=${value}>${words}</option>`)}</select></label>`;
  return html`<div class="audit-filters" role="search" aria-label="Filters">
    ${field("actor", "Who", "user, conductor, address")}${field("node", "Machine", "name or UUID")}${choice("kind", "What", KINDS)}
    ${choice("span", "When", SPANS)}
    ${query.get("span") === "own" && html`<label class="field"><span>From</span>
      <input type="datetime-local" value=${query.get("from") ?? ""} onInput=${set("from")} /></label>
      <label class="field"><span>To</span><input type="datetime-local" value=${query.get("to") ?? ""} onInput=${set("to")} />
        </label>`}
    ${field("trace", "Request", "req-…")}</div>`;
}

function Hit({ entry }) {
  const { lane, title, detail, bad, state } = describe(entry);
  const moment = Date.parse(entry.at);
  const name = entry.node_name ?? entry.node_uuid;
  const who = entry.who.name ?? entry.who.hostname ?? entry.who.address ?? { user: "somebody",
    agent: "agent" }[entry.who.kind] ?? entry.who.kind;
  const isLane = LANES.some(({ id }) => id === lane);
  return html`<li class="hit ${bad ? "bad" : ""} ${isLane ? `lane-${lane}` : ""}" data-seq=${entry.seq}>
    <a class="number" href=${href(`machines/${name}`, { at: entry.seq })} title="Show on the timeline of ${name}">
      <time datetime=${entry.at}>${day(moment)} ${fineClock(moment)}</time></a>
    <span class="cut" title=${name}>${entry.node_name ? html`<a href=${href(`machines/${name}`)}>${name}</a>` : html`<code>
      ${name.slice(0, 8)}…</code>`}</span>
    <span class="cut quiet" title=${entry.who.request_id ?? ""}>
      ${entry.who.request_id ? html`<button class="link" onClick=${() => setQuery({ trace: entry.who.request_id, kind: "all" })}
      title="Everything of request ${entry.who.request_id}">${who}</button>` : who}</span>
    <span class="lane">${laneLabel(lane)}</span>
    <span class="what">${state && html`<${Dot} state=${state} /> `}<strong>${title}</strong> <span class="quiet">${detail}</span>
      </span></li>`;
}

const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const day = (moment) => DAY.format(moment);
