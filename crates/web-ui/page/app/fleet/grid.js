// SPDX-License-Identifier: Apache-2.0
// The fleet as a map of cells, colour by state: one canvas over the visible part, headings above it.
//
// For those who do not see it, it is a list box whose current option is told in words.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../../vendor/preact-htm.js";
import { count } from "../sizes.js";
import { Dot } from "../states.js";
import { useSubject } from "../subject.js";
import { theme } from "../theme.js";
import { draw } from "./drawing.js";
import { layOut, machineAt, machinesWithin, placeOf, vertically, visible } from "./layout.js";
import { click, move, selectOnly, selection, toggleAll } from "./selection.js";
import { Tip } from "./tip.js";

export function Grid({ groups, groupedBy, size, order, changed, onOpen }) {
  const scroller = useRef(), list = useRef(), canvas = useRef();
  const [box, setBox] = useState({ width: 0, height: 0 });
  const [scroll, setScroll] = useState(0);
  const [hover, setHover] = useState(null);
  const [focused, setFocused] = useState(false);
  const [drag, setDrag] = useState(null);
  const { chosen, active } = useSubject(selection);
  const themeName = useSubject(theme);
  const layout = useMemo(() => layOut(groups, box.width, size), [groups, box.width, size]);
  const places = visible(layout, scroll, scroll + box.height);

  useLayoutEffect(() => {
    const element = scroller.current;
    const measure = () => {
      const style = getComputedStyle(element);
      setBox({ width: element.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight),
        height: element.clientHeight });
    };
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    const element = canvas.current;
    const ratio = devicePixelRatio || 1;
    const [width, height] = [Math.round((box.width + 8) * ratio), Math.round(box.height * ratio)];
    if (element.width !== width || element.height !== height) Object.assign(element, { width, height });
    const context = element.getContext("2d");
    let frame = null;
    const paint = () => {
      context.setTransform(ratio, 0, 0, ratio, 4 * ratio, 0);
      context.clearRect(-4, 0, 4, box.height);
      const fading = draw(context, layout, places,
        { width: box.width + 4, height: box.height, scroll, chosen, active, hovered: hover?.row.uuid, changed, focused });
      frame = fading ? requestAnimationFrame(paint) : null;
    };
    paint();
    return () => { if (frame) cancelAnimationFrame(frame); };
  }, [layout, box, scroll, chosen, active, hover, focused, themeName, changed]);

  // The machine at the cursor stays in sight.
  useEffect(() => {
    if (!focused || !active) return;
    const at = placeOf(layout, active);
    if (!at) return;
    const element = scroller.current;
    if (at.y < element.scrollTop + 4) element.scrollTop = at.y - 34;
    else if (at.y + layout.cell.height > element.scrollTop + element.clientHeight) element.scrollTop = at.y + layout.cell.height - element.clientHeight + 12;
  }, [active, focused]);

  const point = (event) => {
    const at = canvas.current.getBoundingClientRect();
    return { x: event.clientX - at.left - 4, y: event.clientY - at.top + scroller.current.scrollTop };
  };
  const rowAt = (event) => { const { x, y } = point(event); return machineAt(layout, x, y); };

  const onPointerDown = (event) => {
    if (event.button !== 0 || event.pointerType === "touch" || event.target.closest("button")) return;
    const from = point(event);
    setDrag({ from, to: from, add: event.ctrlKey || event.metaKey, row: rowAt(event), before: chosen, moved: false });
    event.currentTarget.setPointerCapture(event.pointerId);
    list.current.focus({ preventScroll: true });
  };
  const onPointerMove = (event) => {
    if (!drag) {
      const row = rowAt(event);
      if (row?.uuid !== hover?.row.uuid) setHover(row && event.pointerType !== "touch" ? { row, x: event.clientX,
        y: event.clientY } : null);
      return;
    }
    const to = point(event);
    const moved = drag.moved || Math.abs(to.x - drag.from.x) + Math.abs(to.y - drag.from.y) > 6;
    setDrag({ ...drag, to, moved });
    if (!moved) return;
    setHover(null);
    const within = machinesWithin(layout, Math.min(drag.from.x, to.x), Math.min(drag.from.y, to.y), Math.max(drag.from.x, to.x),
      Math.max(drag.from.y, to.y));
    selectOnly(drag.add ? [...drag.before, ...within] : within);
  };
  const onPointerUp = (event) => {
    const ended = drag;
    setDrag(null);
    if (!ended || ended.moved || !ended.row) return;
    if (event.shiftKey || event.ctrlKey || event.metaKey || chosen.size > 0) click(ended.row.uuid, event, order);
    else onOpen(ended.row);
  };
  const onTouchClick = (event) => {
    if (event.pointerType !== "touch") return;
    const row = rowAt(event);
    if (!row) return;
    if (chosen.size > 0) click(row.uuid, event, order); else onOpen(row);
  };

  const current = active ? placeOf(layout, active) : null;
  const row = current?.place.rows[current.index];
  const onKeyDown = (event) => {
    const index = Math.max(0, order.indexOf(active));
    if (event.key === "Enter" && row) { onOpen(row); return; }
    if (event.key === " " && active) { event.preventDefault(); click(active, event, order); return; }
    const steps = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity, PageDown: layout.columns * 8,
      PageUp: -layout.columns * 8 };
    let target;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") target = vertically(layout, active,
      event.key === "ArrowDown" ? 1 : -1);
    else if (event.key in steps) target = order[Math.max(0, Math.min(order.length - 1, active ? index + steps[event.key] : 0))];
    else return;
    event.preventDefault();
    move(target, event.shiftKey, order);
  };

  return html`<div class="grid-scroller" ref=${scroller} data-drawn=${places.reduce((sum, place) => sum + place.rows.length, 0)}
      onScroll=${(event) => { setScroll(event.currentTarget.scrollTop); if (hover) setHover(null); }}
      onPointerDown=${onPointerDown} onPointerMove=${onPointerMove} onPointerUp=${onPointerUp} onClick=${onTouchClick}
      onPointerLeave=${() => setHover(null)}>
    <div class="grid-inner" style=${{ height: `${Math.max(layout.height, box.height)}px` }}>
    <div class="grid-list" ref=${list} tabindex="0" role="listbox" aria-multiselectable="true" aria-label="Machines"
      aria-activedescendant=${row ? "grid-current" : undefined}
        onKeyDown=${onKeyDown} onFocus=${() => { setFocused(true); if (!active && order.length) move(order[0], false, order); }}
          onBlur=${() => setFocused(false)}>
      <canvas ref=${canvas} style=${{ width: `${box.width + 8}px`, height: `${box.height}px` }} role="presentation"></canvas>
      ${row && html`<div id="grid-current" class="unseen" role="option" aria-selected=${chosen.has(row.uuid)}
        aria-setsize=${order.length} aria-posinset=${order.indexOf(active) + 1}>
        ${row.label}, ${row.provision_state}${row.why ? `, waits for ${row.why}` : ""}, ${row.power_state ?? "power unknown"}${row.maintenance ? ", in maintenance" : ""}</div>`}
    </div>
    ${places.map((place) => place.name && html`<${Heading} key=${place.value} place=${place} groupedBy=${groupedBy}
      chosen=${chosen} />`)}
    ${drag?.moved && html`<div class="marquee"
      style=${{ left: `${Math.min(drag.from.x, drag.to.x)}px`, top: `${Math.min(drag.from.y, drag.to.y)}px`,
      width: `${Math.abs(drag.from.x - drag.to.x)}px`, height: `${Math.abs(drag.from.y - drag.to.y)}px` }}></div>`}
    </div>
    ${hover && html`<${Tip} row=${hover.row} x=${hover.x} y=${hover.y} />`}
  </div>`;
}

function Heading({ place, groupedBy, chosen }) {
  const uuids = place.rows.map((row) => row.uuid);
  const all = chosen.size > 0 && uuids.every((uuid) => chosen.has(uuid));
  return html`<button class="group-heading" tabindex="-1" style=${{ top: `${place.top}px`, left: `${place.left - 6}px` }}
    title="Select all of ${place.name}" onClick=${() => toggleAll(uuids)}>
    ${groupedBy === "state" && html`<${Dot} state=${place.value} />`}
    <span class=${all ? "all" : ""}>${place.name}</span><span class="number faint">${count(place.rows.length, "machine")}</span>
  </button>`;
}
