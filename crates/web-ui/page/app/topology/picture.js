// SPDX-License-Identifier: Apache-2.0
// The topology as one picture, zoomed and moved with wheel, pinch, drag and keys. The list says the same
// in words.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../../vendor/preact-htm.js";
import { Icon } from "../icons.js";
import { count } from "../sizes.js";
import { useSubject } from "../subject.js";
import { theme } from "../theme.js";
import { draw } from "./drawing.js";
import { wordsOf } from "./model.js";

const SMALLEST = 0.005, LARGEST = 3, READABLE = 0.45, MARGIN = 24;
/** With more blocks than this all of them are shown, as on a map. */
const MAP_FROM = 3;

export function Picture({ topology, layout, marked, focus, rows, onOpen }) {
  const frame = useRef(), canvas = useRef();
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [view, setView] = useState(null);
  const [hover, setHover] = useState(null);
  const themeName = useSubject(theme);
  const shown = view ?? fitting(layout, size);

  useLayoutEffect(() => {
    const measure = () => setSize({ width: frame.current.clientWidth, height: frame.current.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(frame.current);
    measure();
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    if (!size.width) return;
    const ratio = devicePixelRatio || 1;
    const [width, height] = [Math.round(size.width * ratio), Math.round(size.height * ratio)];
    if (canvas.current.width !== width || canvas.current.height !== height) Object.assign(canvas.current, { width, height });
    draw(canvas.current.getContext("2d"), { layout, view: shown, ...size, marked, hover: hover?.thing, rows });
  }, [layout, shown.x, shown.y, shown.scale, size, marked, hover?.thing, rows, themeName]);

  // What is sought comes into the middle.
  useEffect(() => {
    if (!focus || !size.width) return;
    const scale = Math.max(shown.scale, 0.9);
    const [x, y] = [(focus.x + focus.machine.x) / 2, (focus.y + focus.machine.y) / 2];
    setView({ scale, x: x - size.width / scale / 2, y: y - size.height / scale / 2 });
  }, [focus, size.width]);

  const place = useRef();
  place.current = shown;
  const zoom = (factor, x = size.width / 2, y = size.height / 2) => setView(zoomed(place.current, factor, x, y));
  useEffect(() => {
    const element = canvas.current;
    // Listening by hand, because only so may the page's own scrolling be kept out.
    const onWheel = (event) => {
      event.preventDefault();
      const box = element.getBoundingClientRect();
      const now = place.current;
      if (event.shiftKey) { setView({ ...now, x: now.x + (event.deltaX || event.deltaY) / now.scale }); return; }
      setView(zoomed(now, Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.002)), event.clientX - box.left,
        event.clientY - box.top));
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, []);

  const pointers = useRef(new Map()), moved = useRef(false);
  const onPointerDown = (event) => {
    pointers.current.set(event.pointerId, { x: event.clientX, y: event.clientY });
    moved.current = false;
    event.currentTarget.setPointerCapture(event.pointerId);
  };
  const onPointerMove = (event) => {
    const before = pointers.current.get(event.pointerId);
    const box = canvas.current.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    if (!before) {
      const thing = under(layout, shown, x, y);
      setHover(thing ? { thing, x, y } : null);
      return;
    }
    const [dx, dy] = [event.clientX - before.x, event.clientY - before.y];
    if (Math.abs(dx) + Math.abs(dy) > 3) moved.current = true;
    const others = [...pointers.current].filter(([id]) => id !== event.pointerId);
    if (others.length) {
      const [, other] = others[0];
      const was = Math.hypot(before.x - other.x, before.y - other.y),
        is = Math.hypot(event.clientX - other.x, event.clientY - other.y);
      if (was > 0) zoom(is / was, (event.clientX + other.x) / 2 - box.left, (event.clientY + other.y) / 2 - box.top);
    } else if (moved.current) {
      setView({ ...place.current, x: place.current.x - dx / shown.scale, y: place.current.y - dy / shown.scale });
    } else return;
    pointers.current.set(event.pointerId, { x: event.clientX, y: event.clientY });
  };
  const onPointerUp = (event) => {
    if (pointers.current.delete(event.pointerId) && !moved.current) {
      const box = canvas.current.getBoundingClientRect();
      const thing = under(layout, shown, event.clientX - box.left, event.clientY - box.top);
      if (thing) onOpen(thing);
    }
  };
  const onKeyDown = (event) => {
    const step = 80 / shown.scale;
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    if (moves[event.key]) setView({ ...shown, x: shown.x + moves[event.key][0], y: shown.y + moves[event.key][1] });
    else if (event.key === "+" || event.key === "=") zoom(1.3);
    else if (event.key === "-") zoom(1 / 1.3);
    else if (event.key === "0") setView(null);
    else return;
    event.preventDefault();
  };
  const { switches, machines } = topology;
  return html`<div class="topology-picture" ref=${frame}>
    <canvas ref=${canvas} role="application" tabindex="0" data-scale=${shown.scale.toFixed(3)}
      aria-label="${count(switches.length, "switch", "switches")} and ${count(machines.size,
        "machine")}. Arrows move, plus and minus zoom, 0 shows all. The list has the same in words."
      onPointerDown=${onPointerDown} onPointerMove=${onPointerMove} onPointerUp=${onPointerUp} onPointerCancel=${onPointerUp}
      onPointerLeave=${() => setHover(null)} onKeyDown=${onKeyDown}></canvas>
    <div class="topology-zoom"><button class="button square" aria-label="Zoom in" onClick=${() => zoom(1.4)}>
      <${Icon} name="plus" /></button>
      <button class="button square" aria-label="Zoom out" onClick=${() => zoom(1 / 1.4)}>−</button>
      <button class="button" onClick=${() => setView(null)}>All <kbd>0</kbd></button></div>
    ${hover && html`<${Tip} ...${hover} size=${size} />`}</div>`;
}

function Tip({ thing, x, y, size }) {
  const right = x > size.width - 320;
  const style = { left: right ? undefined : `${x + 14}px`, right: right ? `${size.width - x + 14}px` : undefined,
    top: `${Math.min(y + 12, size.height - 90)}px` };
  const lines = thing.machine ? [wordsOf(thing), thing.mac] : thing.management_addresses ? [thing.description,
    thing.management_addresses.join(", "),
    count(thing.ports.length, "port")] : thing.ports.slice(0, 6).map(wordsOf);
  return html`<div class="picture-tip" style=${style} aria-hidden="true"><strong>
    ${thing.machine ? `${thing.on.label} ${thing.id}` : thing.label}</strong>
    ${lines.filter(Boolean).map((line) => html`<span key=${line} class="quiet">${line}</span>`)}</div>`;
}

/** All of it, as far as it can still be read; what is too wide begins at its left. */
function fitting(layout, { width, height }) {
  if (!width || !layout.width) return { x: 0, y: 0, scale: 1 };
  const whole = Math.min((width - 2 * MARGIN) / layout.width, (height - 2 * MARGIN) / layout.height, 1.4);
  const isMap = layout.blocks.length > MAP_FROM;
  const scale = Math.max(isMap ? whole : Math.max(whole, Math.min(READABLE, (height - 2 * MARGIN) / layout.height)), SMALLEST);
  const x = layout.width * scale <= width ? -(width / scale - layout.width) / 2 : -MARGIN / scale;
  const y = layout.height * scale <= height ? -(height / scale - layout.height) / 2 : -MARGIN / scale;
  return { x, y, scale };
}

function zoomed({ x, y, scale }, factor, atX, atY) {
  const next = Math.min(LARGEST, Math.max(SMALLEST, scale * factor));
  return { scale: next, x: x + atX / scale - atX / next, y: y + atY / scale - atY / next };
}

/** What is under a point of the canvas: a port, a machine or a switch. */
function under(layout, view, atX, atY) {
  const [x, y] = [view.x + atX / view.scale, view.y + atY / view.scale];
  const holds = (box) => box.x <= x && x <= box.x + box.width && box.y <= y && y <= box.y + box.height;
  const block = layout.blocks.find(holds);
  if (!block) return null;
  const machine = block.members.find(holds);
  if (machine) return machine;
  const one = block.switches.find(holds);
  return one?.ports.find(holds) ?? one ?? null;
}
