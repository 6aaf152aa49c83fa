// SPDX-License-Identifier: Apache-2.0
// The topology as a map, zoomed and panned by wheel, pinch, drag and keys. The list has the same content
// for screen readers.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../../vendor/preact-htm.js";
import { Icon } from "../icons.js";
import { useObservable } from "../observable.js";
import { count } from "../sizes.js";
import { theme } from "../theme.js";
import { draw } from "./drawing.js";
import { fitView, itemAt, zoomView } from "./map_view.js";
import { describeLink } from "./model.js";

/** The scale at which a search result is shown, at least. */
const FOCUS_SCALE = 0.9;
/** A pointer that moves further than this pans. */
const DRAG_DISTANCE = 3;
/** The distance in pixels that an arrow key pans by. */
const PAN_STEP = 80;

/**
 * `view` is null while the whole topology is shown.
 * @param {object} props
 * @param {import("./model.js").Topology} props.topology
 * @param {any} props.layout
 * @param {Set<import("./model.js").SwitchPort> | null} props.marked
 * @param {any} props.focus
 * @param {Map<string, FleetRow>} props.rows
 * @param {Function} props.onOpen
 */
export function TopologyMap({ topology, layout, marked, focus, rows, onOpen }) {
  const frame = useRef(),
    canvas = useRef();
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [view, setView] = useState(/** @type {import("./map_view.js").MapView | null} */ (null));
  const [hover, setHover] = useState(/** @type {any} */ (null));
  const themeName = useObservable(theme);
  const shown = view ?? fitView(layout, size);

  useLayoutEffect(() => {
    const measure = () =>
      setSize({ width: frame.current.clientWidth, height: frame.current.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(frame.current);
    measure();
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    if (!size.width) return;
    const ratio = devicePixelRatio || 1;
    const width = Math.round(size.width * ratio),
      height = Math.round(size.height * ratio);
    if (canvas.current.width !== width || canvas.current.height !== height)
      Object.assign(canvas.current, { width, height });
    const context = canvas.current.getContext("2d");
    draw(context, { layout, view: shown, ...size, marked, hovered: hover?.item, rows });
  }, [layout, shown.x, shown.y, shown.scale, size, marked, hover?.item, rows, themeName]);

  // Centres the current search result.
  useEffect(() => {
    if (!focus || !size.width) return;
    const scale = Math.max(shown.scale, FOCUS_SCALE);
    const x = (focus.x + focus.machine.x) / 2,
      y = (focus.y + focus.machine.y) / 2;
    setView({ scale, x: x - size.width / scale / 2, y: y - size.height / scale / 2 });
  }, [focus, size.width]);

  const latest = useRef(shown);
  latest.current = shown;
  const zoom = (factor, x = size.width / 2, y = size.height / 2) =>
    setView(zoomView(latest.current, factor, x, y));
  useEffect(() => {
    const element = canvas.current;
    // Not an `onWheel` attribute, because only a non-passive listener can prevent scrolling.
    const onWheel = (event) => {
      event.preventDefault();
      const now = latest.current;
      if (event.shiftKey) {
        setView({ ...now, x: now.x + (event.deltaX || event.deltaY) / now.scale });
        return;
      }
      const box = element.getBoundingClientRect();
      const factor = Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.002));
      setView(zoomView(now, factor, event.clientX - box.left, event.clientY - box.top));
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, []);

  const pointers = useRef(/** @type {Map<number, { x: number, y: number }>} */ (new Map())).current;
  const hasMoved = useRef(false);
  const positionOf = (event) => {
    const box = canvas.current.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const onPointerDown = (event) => {
    pointers.set(event.pointerId, positionOf(event));
    hasMoved.current = false;
    event.currentTarget.setPointerCapture(event.pointerId);
  };
  const onPointerMove = (event) => {
    const before = pointers.get(event.pointerId);
    const position = positionOf(event);
    if (!before) {
      const item = itemAt(layout, shown, position.x, position.y);
      setHover(item ? { item, ...position } : null);
      return;
    }
    const dx = position.x - before.x,
      dy = position.y - before.y;
    if (Math.abs(dx) + Math.abs(dy) > DRAG_DISTANCE) hasMoved.current = true;
    const [other] = [...pointers].flatMap(([id, point]) => (id === event.pointerId ? [] : point));
    if (other) {
      const oldDistance = Math.hypot(before.x - other.x, before.y - other.y),
        newDistance = Math.hypot(position.x - other.x, position.y - other.y);
      if (oldDistance > 0)
        zoom(newDistance / oldDistance, (position.x + other.x) / 2, (position.y + other.y) / 2);
    } else if (hasMoved.current) {
      const now = latest.current;
      setView({ ...now, x: now.x - dx / shown.scale, y: now.y - dy / shown.scale });
    } else return;
    pointers.set(event.pointerId, position);
  };
  const onPointerUp = (event) => {
    if (!pointers.delete(event.pointerId) || hasMoved.current) return;
    const { x, y } = positionOf(event);
    const item = itemAt(layout, shown, x, y);
    if (item) onOpen(item);
  };
  const onKeyDown = (event) => {
    const step = PAN_STEP / shown.scale;
    const pan = {
      ArrowLeft: [-step, 0],
      ArrowRight: [step, 0],
      ArrowUp: [0, -step],
      ArrowDown: [0, step],
    }[event.key];
    if (pan) setView({ ...shown, x: shown.x + pan[0], y: shown.y + pan[1] });
    else if (event.key === "+" || event.key === "=") zoom(1.3);
    else if (event.key === "-") zoom(1 / 1.3);
    else if (event.key === "0") setView(null);
    else return;
    event.preventDefault();
  };
  const { switches, machines } = topology;
  const label = `${count(switches.length, "switch", "switches")} and ${count(machines.size, "machine")}. Arrow keys pan, plus and minus zoom, 0 shows all. The list has the same content.`;
  return html`<div class="topology-map" ref=${frame}>
    <canvas ref=${canvas} role="application" tabindex="0" data-scale=${shown.scale.toFixed(3)} aria-label=${label}
      onPointerDown=${onPointerDown} onPointerMove=${onPointerMove} onPointerUp=${onPointerUp} onPointerCancel=${onPointerUp}
      onPointerLeave=${() => setHover(null)} onKeyDown=${onKeyDown}></canvas>
    <div class="topology-zoom"><button class="button square" aria-label="Zoom in" onClick=${() => zoom(1.4)}><${Icon} name="plus" /></button>
      <button class="button square" aria-label="Zoom out" onClick=${() => zoom(1 / 1.4)}>−</button>
      <button class="button" onClick=${() => setView(null)}>All <kbd>0</kbd></button></div>
    ${hover && html`<${MapTooltip} ...${hover} size=${size} />`}</div>`;
}

/** @param {{ item: any, x: number, y: number, size: { width: number, height: number } }} props */
function MapTooltip({ item, x, y, size }) {
  const isRight = x > size.width - 320;
  const style = {
    left: isRight ? undefined : `${x + 14}px`,
    right: isRight ? `${size.width - x + 14}px` : undefined,
    top: `${Math.min(y + 12, size.height - 90)}px`,
  };
  const { title, lines } = tooltipText(item);
  return html`<div class="chart-tooltip" style=${style} aria-hidden="true"><strong>${title}</strong>
    ${lines.filter(Boolean).map((line) => html`<span key=${line} class="quiet">${line}</span>`)}</div>`;
}

/** The tooltip of a port, a switch or a machine. */
function tooltipText(item) {
  if (item.machine)
    return { title: `${item.on.label} ${item.id}`, lines: [describeLink(item), item.mac] };
  if (item.management_addresses)
    return {
      title: item.label,
      lines: [
        item.description,
        item.management_addresses.join(", "),
        count(item.ports.length, "port"),
      ],
    };
  return { title: item.label, lines: item.ports.slice(0, 6).map(describeLink) };
}
