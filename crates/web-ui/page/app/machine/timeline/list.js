// SPDX-License-Identifier: Apache-2.0
// The timeline in words, the latest first, filtered by lane, by text and by what the picture shows.

import { html, useEffect, useMemo, useRef, useState } from "../../../vendor/preact-htm.js";
import { count } from "../../sizes.js";
import { Dot } from "../../states.js";
import { date, fineClock } from "../../times.js";
import { LANES, describe, laneLabel, short } from "./entries.js";

const AT_FIRST = 200;

export function EntryList({ entries, view, picked, onPick }) {
  const [lane, setLane] = useState("");
  const [text, setText] = useState("");
  const [onlyView, setOnlyView] = useState(false);
  const [most, setMost] = useState(AT_FIRST);
  const list = useRef();
  const told = useMemo(() => entries.map((entry) => ({ entry, ...describe(entry) })), [entries]);
  const sought = text.trim().toLowerCase();
  const shown = told.filter((one) => (!lane || one.lane === lane)
    && (!onlyView || !view || (one.entry.moment >= view.from && one.entry.moment <= view.to))
    && (!sought || `${one.title} ${one.detail} ${JSON.stringify(one.calls ?? "")} ${one.lines?.join(" ") ?? ""}`.toLowerCase().includes(sought))).reverse();
  // What is picked is shown, however far back it is.
  const place = picked === null ? -1 : shown.findIndex((one) => one.entry.seq === picked);
  useEffect(() => { if (place >= most) setMost(place + 100); }, [place, most]);
  useEffect(() => { list.current?.querySelector(`[data-seq="${picked}"]`)?.scrollIntoView({ block: "nearest" }); },
    [picked, place >= 0 && place < most]);
  return html`<section class="entries" aria-label="Entries">
    <div class="entries-bar">
      <h2>${count(shown.length, "entry", "entries")}</h2>
      <input type="search" placeholder="Filter entries" aria-label="Filter entries" value=${text}
        onInput=${(event) => setText(event.currentTarget.value)} />
      <select aria-label="Lane" value=${lane} onChange=${(event) => setLane(event.currentTarget.value)}>
        <option value="">All lanes</option>
        ${LANES.map(({ id, label }) => html`<option key=${id} value=${id}>${label}</option>`)}</select>
      <label class="check"><input type="checkbox" checked=${onlyView}
        onChange=${(event) => setOnlyView(event.currentTarget.checked)} /> only what the picture shows</label>
    </div>
    <ol ref=${list}>${shown.slice(0, most).map((one) => html`<${Entry} key=${one.entry.seq} one=${one}
      isPicked=${one.entry.seq === picked} onPick=${onPick} />`)}</ol>
    ${shown.length > most && html`<button class="button" onClick=${() => setMost(most + 500)}>Show more</button>`}
  </section>`;
}

function Entry({ one: { entry, lane, title, detail, bad, state, calls, lines }, isPicked, onPick }) {
  return html`<li class="entry lane-${lane} ${bad ? "bad" : ""} ${isPicked ? "picked" : ""}" data-seq=${entry.seq}
    onClick=${() => onPick(entry.seq)}>
    <time class="number faint" datetime=${entry.at} title=${date(entry.moment)}>${fineClock(entry.moment)}</time>
    <span class="lane">${laneLabel(lane)}</span>
    <span class="what">${state && html`<${Dot} state=${state} /> `}<strong>${title}</strong> <span class="quiet">${detail}</span>
      ${calls?.length > 1 && html`<details><summary>the calls</summary><ul class="calls mono">
        ${calls.map((call, index) => html`<li key=${index}>${short(call.what)} <span class="faint">
        ${call.result} · ${call.took_ms} ms${call.times > 1 ? ` · ${call.times}×` : ""}</span></li>`)}</ul></details>`}
      ${lines?.length > 1 && html`<details><summary>all lines</summary><pre class="printed">${lines.join("\n")}</pre></details>`}</span>
  </li>`;
}
