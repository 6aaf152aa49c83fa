// SPDX-License-Identifier: Apache-2.0
// The fleet as a virtual table: only the visible rows are in the document.

import {
  html,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "../../vendor/preact-htm.js";
import { errorCause, faultLabel } from "../errors.js";
import { Icon } from "../icons.js";
import { useObservable } from "../observable.js";
import { href, setQuery } from "../route.js";
import { count } from "../sizes.js";
import { Dot, State } from "../states.js";
import { ago, useEverySecond } from "../times.js";
import { waitText } from "../wait_reasons.js";
import { moveCursor, selectByClick, selection, toggleRows } from "./selection.js";

/** The height of a line in pixels. */
const LINE_HEIGHT = 32;
/** Lines rendered above and below the visible part. */
const OVERSCAN = 5;

/**
 * `narrow` columns are hidden on small screens.
 * @type {{ id: string, label: string, narrow?: boolean, cell: (row: FleetRow) => unknown }[]}
 */
const COLUMNS = [
  {
    id: "name",
    label: "Name",
    cell: (row) =>
      html`<a class="cut" tabindex="-1" href=${href(`machines/${row.label}`)}>${row.label}</a>`,
  },
  {
    id: "state",
    label: "State",
    cell: (row) =>
      html`<${State} state=${row.provision_state} target=${row.target_provision_state} />`,
  },
  { id: "doing", label: "Activity", cell: (row) => html`<${Activity} row=${row} />` },
  { id: "power", label: "Power", cell: (row) => html`<${Power} row=${row} />` },
  { id: "class", label: "Class", narrow: true, cell: (row) => row.resource_class },
  { id: "owner", label: "Owner", narrow: true, cell: (row) => row.owner ?? DASH() },
  { id: "rack", label: "Rack", narrow: true, cell: (row) => row.rack ?? DASH() },
  {
    id: "since",
    label: "Since",
    narrow: true,
    cell: (row) => html`<span class="quiet number">${row.since ? ago(row.since) : "–"}</span>`,
  },
];

const DASH = () => html`<span class="faint">–</span>`;

/**
 * @param {object} props
 * @param {RowGroup[]} props.groups
 * @param {string} props.groupedBy
 * @param {string} props.sort
 * @param {boolean} props.descending
 * @param {string[]} props.order
 * @param {Function} props.onOpen
 */
export function FleetTable({ groups, groupedBy, sort, descending, order, onOpen }) {
  const scroller = useRef();
  const [view, setView] = useState({ top: 0, height: 600 });
  const { selected, active } = useObservable(selection);
  useEverySecond();
  const lines = useMemo(() => linesOf(groups), [groups]);

  useLayoutEffect(() => {
    const element = scroller.current;
    const measure = () => setView((before) => ({ ...before, height: element.clientHeight }));
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    return () => observer.disconnect();
  }, []);

  // Keeps the row at the cursor visible.
  useEffect(() => {
    const element = scroller.current;
    if (!active || document.activeElement !== element) return;
    const top = lines.findIndex((line) => line.row?.uuid === active) * LINE_HEIGHT;
    if (top < 0) return;
    if (top < element.scrollTop) element.scrollTop = top - LINE_HEIGHT;
    else if (top + 2 * LINE_HEIGHT > element.scrollTop + element.clientHeight)
      element.scrollTop = top + 2 * LINE_HEIGHT - element.clientHeight;
  }, [active]);

  const first = Math.max(0, Math.floor(view.top / LINE_HEIGHT) - OVERSCAN);
  const end = Math.ceil((view.top + view.height) / LINE_HEIGHT) + OVERSCAN;
  const visible = lines.slice(first, end);
  // Keys repeat, so that scrolling reuses the elements of lines that leave the view.
  const slots = Math.ceil(view.height / LINE_HEIGHT) + 2 * OVERSCAN + 2;
  const slot = (index) => (first + index) % slots;
  const onKeyDown = (event) => {
    if (event.target !== scroller.current) return;
    if (event.key === "Enter" && active) {
      onOpen(lines.find((line) => line.row?.uuid === active)?.row);
      return;
    }
    if (event.key === " " && active) {
      event.preventDefault();
      selectByClick(active, event, order);
      return;
    }
    const page = Math.floor(view.height / LINE_HEIGHT) - 2;
    const step = {
      ArrowDown: 1,
      ArrowUp: -1,
      PageDown: page,
      PageUp: -page,
      Home: -Infinity,
      End: Infinity,
    }[event.key];
    if (step === undefined || !order.length) return;
    event.preventDefault();
    const index = active === null ? -1 : order.indexOf(active);
    const target = index < 0 ? 0 : Math.max(0, Math.min(order.length - 1, index + step));
    moveCursor(order[target], event.shiftKey, order);
  };
  const areAllSelected = order.length > 0 && order.every((uuid) => selected.has(uuid));
  return html`<div class="fleet-table" role="grid" aria-label="Machines" aria-multiselectable="true"
    aria-rowcount=${lines.length + 1} ref=${scroller} tabindex="0" onKeyDown=${onKeyDown}
      onScroll=${(event) => setView({ top: event.currentTarget.scrollTop, height: event.currentTarget.clientHeight })}>
    <div class="fleet-line head" role="row" aria-rowindex="1">
      <span role="columnheader"><input type="checkbox" aria-label="Select all ${order.length}" checked=${areAllSelected}
        onChange=${() => toggleRows(order)} /></span>
      ${COLUMNS.map((column) => html`<${ColumnHeader} key=${column.id} column=${column} isSorted=${sort === column.id} descending=${descending} />`)}
    </div>
    <div class="fleet-lines" role="presentation" style=${{ height: `${lines.length * LINE_HEIGHT}px` }}>
        ${visible.map((line, index) =>
          line.group
            ? html`<${GroupLine} key=${slot(index)} group=${line.group} groupedBy=${groupedBy} index=${first + index + 2} />`
            : html`<${RowLine} key=${slot(index)} row=${line.row} index=${first + index + 2} isSelected=${selected.has(line.row.uuid)}
            isActive=${active === line.row.uuid} order=${order} onOpen=${onOpen} />`,
        )}
    </div>
  </div>`;
}

/**
 * The lines of the table: a heading for each named group, and its rows.
 * @param {RowGroup[]} groups
 * @returns {({ group: RowGroup, row?: undefined } | { row: FleetRow, group?: undefined })[]}
 */
const linesOf = (groups) =>
  groups.flatMap((group) => [
    ...(group.name ? [{ group }] : []),
    ...group.rows.map((row) => ({ row })),
  ]);

/** @param {{ column: any, isSorted: boolean, descending: boolean }} props */
function ColumnHeader({ column, isSorted, descending }) {
  // The first click sorts ascending, the second descending; by name ascending is the default.
  const onClick = () => {
    const isDefault = column.id === "name" && (!isSorted || descending);
    setQuery({ sort: isDefault ? null : column.id, desc: isSorted && !descending ? "1" : null });
  };
  const order = descending ? "descending" : "ascending";
  return html`<span role="columnheader" class=${column.narrow ? "narrow" : ""} aria-sort=${isSorted ? order : "none"}>
    <button tabindex="-1" onClick=${onClick}>
      ${column.label}${isSorted && html`<i class=${descending ? "flip" : ""}><${Icon} name="chevron" /></i>`}</button></span>`;
}

/**
 * The position of a line; row indices start at 2, because the header is 1.
 * @param {number} index
 */
const linePosition = (index) => ({ transform: `translateY(${(index - 2) * LINE_HEIGHT}px)` });

/** @param {{ group: RowGroup, groupedBy: string, index: number }} props */
function GroupLine({ group, groupedBy, index }) {
  return html`<div class="fleet-line group" role="row" aria-rowindex=${index} style=${linePosition(index)}>
    <span role="gridcell" class="group-name">
    <button tabindex="-1" onClick=${() => toggleRows(group.rows.map((row) => row.uuid))}>
      ${groupedBy === "state" && html`<${Dot} state=${group.value} />`} ${group.name}
      <span class="faint number">${count(group.rows.length, "machine")}</span></button></span></div>`;
}

/**
 * @param {object} props
 * @param {FleetRow} props.row
 * @param {number} props.index
 * @param {boolean} props.isSelected
 * @param {boolean} props.isActive
 * @param {string[]} props.order
 * @param {Function} props.onOpen
 */
function RowLine({ row, index, isSelected, isActive, order, onOpen }) {
  // Timeouts change every second, other times every 15 seconds; unchanged lines are not rerendered.
  const tick = Math.floor(Date.now() / (row.wait_until || row.next_action_at ? 1000 : 15000));
  return useMemo(() => {
    const onClick = (event) => {
      if (event.target.closest("a,input")) return;
      if (!event.shiftKey && !event.ctrlKey && !event.metaKey) {
        onOpen(row);
        return;
      }
      event.preventDefault();
      selectByClick(row.uuid, event, order);
    };
    const onCheck = (event) => {
      selectByClick(row.uuid, event, order);
      // The browser has toggled the checkbox; a range may leave the row as it was.
      event.currentTarget.checked = selection.value.selected.has(row.uuid);
    };
    return html`<div class="fleet-line ${isSelected ? "selected" : ""} ${isActive ? "active" : ""}" role="row" aria-rowindex=${index}
      aria-selected=${isSelected} data-node=${row.label} style=${linePosition(index)} onClick=${onClick}>
      <span role="gridcell"><input type="checkbox" tabindex="-1" aria-label="Select ${row.label}" checked=${isSelected}
        onClick=${onCheck} /></span>
      ${COLUMNS.map(
        (
          column,
        ) => html`<span key=${column.id} role="gridcell" class="cut ${column.narrow ? "narrow" : ""}">
        ${column.cell(row)}</span>`,
      )}
    </div>`;
  }, [row, index, isSelected, isActive, order, tick]);
}

/** @param {{ row: FleetRow }} props */
function Activity({ row }) {
  if (row.maintenance)
    return html`<span class=${row.fault ? "bad-text" : "warn-text"}>${row.fault ? faultLabel(row.fault) : "maintenance"}</span>`;
  if (row.wait_reason) return html`<span class="quiet number">${waitText(row)}</span>`;
  if (row.error) {
    const cause = errorCause(row.error);
    return html`<span class="bad-text" title=${cause}>${cause}</span>`;
  }
  return DASH();
}

/** @param {{ row: FleetRow }} props */
function Power({ row }) {
  if (row.target_power_state)
    return html`<span class="quiet">→ ${row.target_power_state.replace("power ", "")}</span>`;
  if (row.power_state === "power on") return html`<span class="lamp on">on</span>`;
  if (row.power_state === "power off") return html`<span class="lamp">off</span>`;
  return html`<span class=${row.power_state ? "bad-text" : "faint"}>${row.power_state ?? "–"}</span>`;
}
