// SPDX-License-Identifier: Apache-2.0
// The timeline as a list, latest first, filtered by lane, text and the time range of the chart.

import { html, useEffect, useMemo, useRef, useState } from "../../../vendor/preact-htm.js";
import { count } from "../../sizes.js";
import { Dot } from "../../states.js";
import { date, preciseClock } from "../../times.js";
import { LANES, describe, laneLabel, shortenCall } from "./entries.js";

const INITIAL_LINES = 200;
const MORE_LINES = 500;

/**
 * `view` is the time range of the chart, null if it shows the last job.
 * @param {object} props
 * @param {JournalEntry[]} props.entries
 * @param {{ from: number, to: number } | null} props.view
 * @param {number | null} props.selected
 * @param {Function} props.onSelect
 */
export function EntryList({ entries, view, selected, onSelect }) {
  const [lane, setLane] = useState("");
  const [text, setText] = useState("");
  const [onlyView, setOnlyView] = useState(false);
  const [limit, setLimit] = useState(INITIAL_LINES);
  const list = useRef();
  const described = useMemo(
    () => entries.map((entry) => ({ entry, ...describe(entry) })),
    [entries],
  );
  const needle = text.trim().toLowerCase();
  const shown = described
    .filter((line) => !lane || line.lane === lane)
    .filter(({ entry }) => !onlyView || !view || isWithin(entry, view))
    .filter((line) => !needle || searchTextOf(line).includes(needle))
    .reverse();
  // The selected entry is shown even if it is beyond the limit.
  const index = selected === null ? -1 : shown.findIndex(({ entry }) => entry.seq === selected);
  useEffect(() => {
    if (index >= limit) setLimit(index + 100);
  }, [index, limit]);
  useEffect(() => {
    list.current?.querySelector(`[data-seq="${selected}"]`)?.scrollIntoView({ block: "nearest" });
  }, [selected, index >= 0 && index < limit]);
  return html`<section class="entries" aria-label="Entries">
    <div class="entries-bar">
      <h2>${count(shown.length, "entry", "entries")}</h2>
      <input type="search" placeholder="Filter entries" aria-label="Filter entries" value=${text}
        onInput=${(event) => setText(event.currentTarget.value)} />
      <select aria-label="Lane" value=${lane} onChange=${(event) => setLane(event.currentTarget.value)}>
        <option value="">All lanes</option>
        ${LANES.map(({ id, label }) => html`<option key=${id} value=${id}>${label}</option>`)}</select>
      <label class="check"><input type="checkbox" checked=${onlyView}
        onChange=${(event) => setOnlyView(event.currentTarget.checked)} /> only the visible time range</label>
    </div>
    <ol ref=${list}>${shown
      .slice(0, limit)
      .map(
        (line) =>
          html`<${EntryLine} key=${line.entry.seq} line=${line} isSelected=${line.entry.seq === selected} onSelect=${onSelect} />`,
      )}</ol>
    ${shown.length > limit && html`<button class="button" onClick=${() => setLimit(limit + MORE_LINES)}>Show more</button>`}
  </section>`;
}

/**
 * @param {JournalEntry} entry
 * @param {{ from: number, to: number }} view
 */
const isWithin = ({ timestamp }, { from, to }) => timestamp >= from && timestamp <= to;

/** @param {EntryText} line */
const searchTextOf = ({ title, detail, calls, lines }) =>
  [title, detail, calls && JSON.stringify(calls), lines?.join(" ")].join(" ").toLowerCase();

/** @param {{ line: any, isSelected: boolean, onSelect: Function }} props */
function EntryLine({ line, isSelected, onSelect }) {
  const { entry, lane, title, detail, isError, state, calls = [], lines = [] } = line;
  return html`<li class="entry lane-${lane} ${isError ? "bad" : ""} ${isSelected ? "selected" : ""}" data-seq=${entry.seq}
    onClick=${() => onSelect(entry.seq)}>
    <time class="number faint" datetime=${entry.at} title=${date(entry.timestamp)}>${preciseClock(entry.timestamp)}</time>
    <span class="lane">${laneLabel(lane)}</span>
    <span class="what">${state && html`<${Dot} state=${state} /> `}<strong>${title}</strong> <span class="quiet">${detail}</span>
      ${calls.length > 1 && html`<${CallList} calls=${calls} />`}
      ${lines.length > 1 && html`<details><summary>All lines</summary><pre class="console-lines">${lines.join("\n")}</pre></details>`}</span>
  </li>`;
}

/** @param {{ calls: RecordedCall[] }} props */
function CallList({ calls }) {
  return html`<details><summary>Calls</summary><ul class="calls mono">
    ${calls.map(
      (call, index) => html`<li key=${index}>${shortenCall(call.request)} <span class="faint">
        ${call.result} · ${call.took_ms} ms${(call.times ?? 1) > 1 ? ` · ${call.times}×` : ""}</span></li>`,
    )}</ul></details>`;
}
