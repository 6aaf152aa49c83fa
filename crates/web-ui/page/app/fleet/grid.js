// SPDX-License-Identifier: Apache-2.0
// The fleet as a grid of cells, coloured by state: one canvas for the visible part, with headings above
// it. For screen readers it is a list box whose current option is described in text.

import {
  html,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "../../vendor/preact-htm.js";
import { useObservable } from "../observable.js";
import { count } from "../sizes.js";
import { Dot, stateLabel } from "../states.js";
import { theme } from "../theme.js";
import { describeWait } from "../wait_reasons.js";
import { draw } from "./drawing.js";
import {
  findCell,
  layoutGroups,
  neighbourCell,
  rowAt,
  uuidsInRectangle,
  visibleBlocks,
} from "./layout.js";
import { moveCursor, selectByClick, selection, setSelection, toggleRows } from "./selection.js";
import { Tooltip } from "./tooltip.js";

/** Space for the outlines of cells at the edges of the canvas. */
const BLEED = 4;
/** A pointer that moves further than this drags a rectangle. */
const DRAG_DISTANCE = 6;
const LINES_PER_PAGE = 8;

/** @typedef {{ x: number, y: number }} Point */
/**
 * @typedef {object} Drag
 * @property {Point} from
 * @property {Point} to
 * @property {boolean} isAdding
 * @property {FleetRow | null} row
 * @property {Set<string>} before
 * @property {boolean} hasMoved
 * @param {object} props
 * @param {RowGroup[]} props.groups
 * @param {string} props.groupedBy
 * @param {string} props.size
 * @param {string[]} props.order
 * @param {Map<string, number>} props.changed
 * @param {Function} props.onOpen
 */

export function Grid({ groups, groupedBy, size, order, changed, onOpen }) {
  const scroller = useRef(),
    list = useRef(),
    canvas = useRef();
  const [box, setBox] = useState({ width: 0, height: 0 });
  const [scroll, setScroll] = useState(0);
  const [hover, setHover] = useState(/** @type {{ row: FleetRow } & Point | null} */ (null));
  const [focused, setFocused] = useState(false);
  const [drag, setDrag] = useState(/** @type {Drag | null} */ (null));
  const { selected, active } = useObservable(selection);
  const themeName = useObservable(theme);
  const layout = useMemo(() => layoutGroups(groups, box.width, size), [groups, box.width, size]);
  const blocks = visibleBlocks(layout, scroll, scroll + box.height);

  useLayoutEffect(() => {
    const element = scroller.current;
    const measure = () => {
      const style = getComputedStyle(element);
      setBox({
        width: element.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight),
        height: element.clientHeight,
      });
    };
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    const element = canvas.current;
    const ratio = devicePixelRatio || 1;
    const width = Math.round((box.width + 2 * BLEED) * ratio),
      height = Math.round(box.height * ratio);
    if (element.width !== width || element.height !== height)
      Object.assign(element, { width, height });
    const context = element.getContext("2d");
    /** @type {number | null} */
    let frame = null;
    const paint = () => {
      context.setTransform(ratio, 0, 0, ratio, BLEED * ratio, 0);
      context.clearRect(-BLEED, 0, BLEED, box.height);
      const isAnimating = draw(context, layout, blocks, {
        width: box.width + BLEED,
        height: box.height,
        scroll,
        selected,
        active,
        hovered: hover?.row.uuid,
        changed,
        focused,
      });
      frame = isAnimating ? requestAnimationFrame(paint) : null;
    };
    paint();
    return () => {
      if (frame !== null) cancelAnimationFrame(frame);
    };
  }, [layout, box, scroll, selected, active, hover, focused, themeName, changed]);

  // Keeps the cell at the cursor visible.
  useEffect(() => {
    const at = focused && active ? findCell(layout, active) : null;
    if (!at) return;
    const element = scroller.current;
    const bottom = at.y + layout.cell.height;
    if (at.y < element.scrollTop + 4) element.scrollTop = at.y - 34;
    else if (bottom > element.scrollTop + element.clientHeight)
      element.scrollTop = bottom - element.clientHeight + 12;
  }, [active, focused]);

  const pointOf = (event) => {
    const bounds = canvas.current.getBoundingClientRect();
    return {
      x: event.clientX - bounds.left - BLEED,
      y: event.clientY - bounds.top + scroller.current.scrollTop,
    };
  };
  const rowUnder = (event) => {
    const { x, y } = pointOf(event);
    return rowAt(layout, x, y);
  };

  const onPointerDown = (event) => {
    if (event.button !== 0 || event.pointerType === "touch" || event.target.closest("button"))
      return;
    const from = pointOf(event);
    setDrag({
      from,
      to: from,
      isAdding: event.ctrlKey || event.metaKey,
      row: rowUnder(event),
      before: selected,
      hasMoved: false,
    });
    event.currentTarget.setPointerCapture(event.pointerId);
    list.current.focus({ preventScroll: true });
  };
  const onPointerMove = (event) => {
    if (!drag) {
      const row = rowUnder(event);
      if (row?.uuid !== hover?.row.uuid)
        setHover(
          row && event.pointerType !== "touch" ? { row, x: event.clientX, y: event.clientY } : null,
        );
      return;
    }
    const to = pointOf(event);
    const distance = Math.abs(to.x - drag.from.x) + Math.abs(to.y - drag.from.y);
    const hasMoved = drag.hasMoved || distance > DRAG_DISTANCE;
    setDrag({ ...drag, to, hasMoved });
    if (!hasMoved) return;
    setHover(null);
    const { left, top, right, bottom } = rectangleOf({ ...drag, to });
    const inside = uuidsInRectangle(layout, left, top, right, bottom);
    setSelection(drag.isAdding ? [...drag.before, ...inside] : inside);
  };
  const onPointerUp = (event) => {
    const ended = drag;
    setDrag(null);
    if (!ended || ended.hasMoved || !ended.row) return;
    if (event.shiftKey || event.ctrlKey || event.metaKey || selected.size > 0)
      selectByClick(ended.row.uuid, event, order);
    else onOpen(ended.row);
  };
  const onTouchClick = (event) => {
    if (event.pointerType !== "touch") return;
    const row = rowUnder(event);
    if (!row) return;
    if (selected.size > 0) selectByClick(row.uuid, event, order);
    else onOpen(row);
  };

  const current = active ? findCell(layout, active) : null;
  const currentRow = current?.block.rows[current.index];
  const onKeyDown = (event) => {
    if (event.key === "Enter" && currentRow) {
      onOpen(currentRow);
      return;
    }
    if (event.key === " " && active) {
      event.preventDefault();
      selectByClick(active, event, order);
      return;
    }
    const target = keyTarget(event.key, layout, order, active);
    if (target === undefined) return;
    event.preventDefault();
    moveCursor(target, event.shiftKey, order);
  };

  return html`<div class="grid-scroller" ref=${scroller} data-drawn=${blocks.reduce((sum, block) => sum + block.rows.length, 0)}
      onScroll=${(event) => {
        setScroll(event.currentTarget.scrollTop);
        if (hover) setHover(null);
      }}
      onPointerDown=${onPointerDown} onPointerMove=${onPointerMove} onPointerUp=${onPointerUp} onClick=${onTouchClick}
      onPointerLeave=${() => setHover(null)}>
    <div class="grid-inner" style=${{ height: `${Math.max(layout.height, box.height)}px` }}>
    <div class="grid-list" ref=${list} tabindex="0" role="listbox" aria-multiselectable="true" aria-label="Machines"
      aria-activedescendant=${currentRow ? "grid-current" : undefined} onKeyDown=${onKeyDown}
      onFocus=${() => {
        setFocused(true);
        if (!active && order.length) moveCursor(order[0], false, order);
      }} onBlur=${() => setFocused(false)}>
      <canvas ref=${canvas} style=${{ width: `${box.width + 2 * BLEED}px`, height: `${box.height}px` }} role="presentation"></canvas>
      ${
        currentRow &&
        html`<div id="grid-current" class="visually-hidden" role="option" aria-selected=${selected.has(currentRow.uuid)}
        aria-setsize=${order.length} aria-posinset=${order.indexOf(currentRow.uuid) + 1}>${describeRow(currentRow)}</div>`
      }
    </div>
    ${blocks.map(
      (block) =>
        block.name &&
        html`<${GroupHeading} key=${block.value} block=${block} groupedBy=${groupedBy} selected=${selected} />`,
    )}
    ${drag?.hasMoved && html`<${DragRectangle} drag=${drag} />`}
    </div>
    ${hover && html`<${Tooltip} row=${hover.row} x=${hover.x} y=${hover.y} />`}
  </div>`;
}

/**
 * The row to which a key moves the cursor, or undefined.
 * @param {string} key
 * @param {import("./layout.js").GridLayout} layout
 * @param {string[]} order
 * @param {string | null} active
 */
function keyTarget(key, layout, order, active) {
  if (key === "ArrowDown" || key === "ArrowUp")
    return neighbourCell(layout, active, key === "ArrowDown" ? 1 : -1);
  const page = layout.columns * LINES_PER_PAGE;
  /** @type {number | undefined} */
  const step = {
    ArrowRight: 1,
    ArrowLeft: -1,
    Home: -Infinity,
    End: Infinity,
    PageDown: page,
    PageUp: -page,
  }[key];
  if (step === undefined) return undefined;
  if (active === null) return order[0];
  const index = Math.max(0, order.indexOf(active));
  return order[Math.max(0, Math.min(order.length - 1, index + step))];
}

/**
 * The row in words, for screen readers.
 * @param {FleetRow} row
 */
const describeRow = (row) =>
  [
    row.label,
    stateLabel(row.provision_state),
    row.wait_reason && describeWait(row.wait_reason)[0],
    row.power_state ?? "power unknown",
    row.maintenance && "in maintenance",
  ]
    .filter(Boolean)
    .join(", ");

/** @param {{ from: Point, to: Point }} drag */
const rectangleOf = ({ from, to }) => ({
  left: Math.min(from.x, to.x),
  top: Math.min(from.y, to.y),
  right: Math.max(from.x, to.x),
  bottom: Math.max(from.y, to.y),
});

/** @param {{ drag: Drag }} props */
function DragRectangle({ drag }) {
  const { left, top, right, bottom } = rectangleOf(drag);
  const style = {
    left: `${left}px`,
    top: `${top}px`,
    width: `${right - left}px`,
    height: `${bottom - top}px`,
  };
  return html`<div class="marquee" style=${style}></div>`;
}

/** @param {{ block: import("./layout.js").Block, groupedBy: string, selected: Set<string> }} props */
function GroupHeading({ block, groupedBy, selected }) {
  const uuids = block.rows.map((row) => row.uuid);
  const areAllSelected = selected.size > 0 && uuids.every((uuid) => selected.has(uuid));
  return html`<button class="group-heading" tabindex="-1" style=${{ top: `${block.top}px`, left: `${block.left - 6}px` }}
    title="Select all of ${block.name}" onClick=${() => toggleRows(uuids)}>
    ${groupedBy === "state" && html`<${Dot} state=${block.value} />`}
    <span class=${areAllSelected ? "all" : ""}>${block.name}</span><span class="number faint">${count(block.rows.length, "machine")}</span>
  </button>`;
}
