// SPDX-License-Identifier: Apache-2.0
// The fleet as a table of which only the visible rows exist.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../../vendor/preact-htm.js";
import { Icon } from "../icons.js";
import { href, setQuery } from "../route.js";
import { count } from "../sizes.js";
import { Dot, State, stateOrder } from "../states.js";
import { useSubject } from "../subject.js";
import { ago, countdown, useSeconds } from "../times.js";
import { waitWords } from "../waits.js";
import { compare } from "./model.js";
import { click, move, selection, toggleAll } from "./selection.js";

const LINE = 32;
const AROUND = 5;

const COLUMNS = [
  { id: "name", label: "Name", width: "minmax(150px, 1.3fr)", key: (row) => row.label, cell: (row) => html`<a class="cut"
    tabindex="-1" href=${href(`machines/${row.label}`)}>${row.label}</a>` },
  { id: "state", label: "State", width: "minmax(170px, 1.3fr)", key: (row) => stateOrder(row.provision_state),
    cell: (row) => html`<${State} state=${row.provision_state} target=${row.target_provision_state} />` },
  { id: "doing", label: "Doing", width: "minmax(180px, 2fr)", key: (row) => (row.error ? 0 : row.why ? 1 : 2),
    cell: (row) => html`<${Doing} row=${row} />` },
  { id: "power", label: "Power", width: "84px", key: (row) => row.power_state ?? "", cell: (row) => html`<${Power} row=${row} />` },
  { id: "class", label: "Class", width: "minmax(110px, 1fr)", narrow: true, key: (row) => row.resource_class ?? "",
    cell: (row) => row.resource_class },
  { id: "owner", label: "Owner", width: "minmax(90px, .8fr)", narrow: true, key: (row) => row.owner ?? "",
    cell: (row) => row.owner ?? html`<span class="faint">–</span>` },
  { id: "rack", label: "Rack", width: "80px", narrow: true, key: (row) => row.rack ?? "", cell: (row) => row.rack ?? html`<span
    class="faint">–</span>` },
  { id: "since", label: "Since", width: "84px", narrow: true, key: (row) => -(row.since ?? 0), cell: (row) => html`<span
    class="quiet number">${row.since ? ago(row.since) : "–"}</span>` },
];

/** The rows in the table's order, group by group. */
export function sorted(groups, sort, descending) {
  const column = COLUMNS.find((one) => one.id === sort);
  if (!column || (column.id === "name" && !descending)) return groups;
  const sign = descending ? -1 : 1;
  return groups.map((group) => ({
    ...group,
    rows: [...group.rows].sort((one, other) => {
      const [a, b] = [column.key(one), column.key(other)];
      return sign * (typeof a === "number" ? a - b : compare(a, b));
    }),
  }));
}

export function Table({ groups, groupedBy, sort, descending, order, onOpen }) {
  const scroller = useRef();
  const [view, setView] = useState({ top: 0, height: 600 });
  const { chosen, active } = useSubject(selection);
  useSeconds();
  const lines = useMemo(() => groups.flatMap((group) => (group.name ? [{ group }] : []).concat(group.rows.map((row) => ({ row })))), [groups]);

  useLayoutEffect(() => {
    const element = scroller.current;
    const measure = () => setView((before) => ({ ...before, height: element.clientHeight }));
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    if (!active || document.activeElement !== scroller.current) return;
    const at = lines.findIndex((line) => line.row?.uuid === active) * LINE;
    const element = scroller.current;
    if (at < 0) return;
    if (at < element.scrollTop) element.scrollTop = at - LINE;
    else if (at + 2 * LINE > element.scrollTop + element.clientHeight) element.scrollTop = at + 2 * LINE - element.clientHeight;
  }, [active]);

  const first = Math.max(0, Math.floor(view.top / LINE) - AROUND);
  const shown = lines.slice(first, Math.ceil((view.top + view.height) / LINE) + AROUND);
  // Lines that leave above come back below: elements are changed, not made anew.
  const slots = Math.ceil(view.height / LINE) + 2 * AROUND + 2;
  const slot = (index) => (first + index) % slots;
  const onKeyDown = (event) => {
    if (event.target !== scroller.current) return;
    const page = Math.floor(view.height / LINE) - 2;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" && active) { onOpen(lines.find((line) => line.row?.uuid === active).row); return; }
    if (event.key === " " && active) { event.preventDefault(); click(active, event, order); return; }
    if (!(event.key in steps) || !order.length) return;
    event.preventDefault();
    const index = order.indexOf(active);
    move(order[Math.max(0, Math.min(order.length - 1, index < 0 ? 0 : index + steps[event.key]))], event.shiftKey, order);
  };
  const all = order.length > 0 && order.every((uuid) => chosen.has(uuid));
  return html`<div class="fleet-table" role="grid" aria-label="Machines" aria-multiselectable="true"
    aria-rowcount=${lines.length + 1}
      ref=${scroller} tabindex="0" onKeyDown=${onKeyDown}
      onScroll=${(event) => setView({ top: event.currentTarget.scrollTop, height: event.currentTarget.clientHeight })}>
    <div class="fleet-line head" role="row" aria-rowindex="1">
      <span role="columnheader"><input type="checkbox" aria-label="Select all ${order.length}" checked=${all}
        onChange=${() => toggleAll(order)} /></span>
      ${COLUMNS.map((column) => html`<span key=${column.id} role="columnheader" class=${column.narrow ? "narrow" : ""}
        aria-sort=${sort === column.id ? (descending ? "descending" : "ascending") : "none"}>
        <button tabindex="-1" onClick=${() => setQuery({ sort: column.id === "name" && (sort !== "name" || descending) ? null : column.id, desc: sort === column.id && !descending ? "1" : null })}>
          ${column.label}${sort === column.id && html`<i class=${descending ? "flip" : ""}><${Icon} name="chevron" /></i>`}
            </button></span>`)}
    </div>
    <div class="fleet-lines" role="presentation" style=${{ height: `${lines.length * LINE}px` }}>
        ${shown.map((line, index) => (line.group
          ? html`<${GroupLine} key=${slot(index)} group=${line.group} groupedBy=${groupedBy} index=${first + index + 2} />`
          : html`<${Line} key=${slot(index)} row=${line.row} index=${first + index + 2} chosen=${chosen.has(line.row.uuid)}
            active=${active === line.row.uuid} order=${order} onOpen=${onOpen} />`))}
    </div>
  </div>`;
}

/** Where the line of a row index (from 2 on: the head is 1) stands. */
const placed = (index) => ({ transform: `translateY(${(index - 2) * LINE}px)` });

function GroupLine({ group, groupedBy, index }) {
  return html`<div class="fleet-line group" role="row" aria-rowindex=${index} style=${placed(index)}>
    <span role="gridcell" class="group-name">
    <button tabindex="-1" onClick=${() => toggleAll(group.rows.map((row) => row.uuid))}>
      ${groupedBy === "state" && html`<${Dot} state=${group.value} />`} ${group.name}
      <span class="faint number">${count(group.rows.length, "machine")}</span></button></span></div>`;
}

function Line({ row, index, chosen, active, order, onOpen }) {
  // Counted seconds move every second, the rest now and then; what did not change is not looked at again.
  const moment = Math.floor(Date.now() / (row.until ? 1000 : 15000));
  return useMemo(() => {
    const onClick = (event) => {
      if (event.target.closest("a,input")) return;
      if (!event.shiftKey && !event.ctrlKey && !event.metaKey) { onOpen(row); return; }
      event.preventDefault();
      click(row.uuid, event, order);
    };
    const onCheck = (event) => { event.preventDefault(); click(row.uuid, event, order); };
    return html`<div class="fleet-line ${chosen ? "chosen" : ""} ${active ? "active" : ""}" role="row" aria-rowindex=${index}
      aria-selected=${chosen} data-node=${row.label} style=${placed(index)} onClick=${onClick}>
      <span role="gridcell"><input type="checkbox" tabindex="-1" aria-label="Select ${row.label}" checked=${chosen}
        onClick=${onCheck} /></span>
      ${COLUMNS.map((column) => html`<span key=${column.id} role="gridcell" class="cut ${column.narrow ? "narrow" : ""}">
        ${column.cell(row)}</span>`)}
    </div>`;
  }, [row, index, chosen, active, order, moment]);
}

function Doing({ row }) {
  if (row.maintenance) return html`<span class="warn-text">maintenance${row.fault ? `: ${row.fault}` : ""}</span>`;
  if (row.why) return html`<span class="quiet">
    ${waitWords(row.why)[0]}${row.until ? html` · <span class="number">${countdown(row.until)}</span>` : ""}</span>`;
  if (row.error) return html`<span class="bad-text" title=${row.error}>${row.error}</span>`;
  return html`<span class="faint">–</span>`;
}

export function Power({ row }) {
  if (row.target_power_state) return html`<span class="quiet">→ ${row.target_power_state.replace("power ", "")}</span>`;
  if (row.power_state === "power on") return html`<span class="lamp on">on</span>`;
  if (row.power_state === "power off") return html`<span class="lamp">off</span>`;
  return html`<span class=${row.power_state ? "bad-text" : "faint"}>${row.power_state ?? "–"}</span>`;
}
