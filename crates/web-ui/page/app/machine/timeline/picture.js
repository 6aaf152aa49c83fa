// SPDX-License-Identifier: Apache-2.0
// The timeline as one picture: states as a band, lanes of marks and spans below, zoomed and moved with
// wheel, pinch, drag and keys. The list below it says the same in words.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../../../vendor/preact-htm.js";
import { familyOf } from "../../states.js";
import { useSubject } from "../../subject.js";
import { colour, theme } from "../../theme.js";
import { clock, date, duration, fineClock } from "../../times.js";
import { LANES } from "./entries.js";

const LABELS = 128;
const BAND = 26, LANE = 30, AXIS = 24, OVERVIEW = 20;
const SHORTEST = 20, LONGEST = 366 * 86400e3;

/** `view` is `{from, to}` in milliseconds; `onView` changes it; `onPick` is told what was clicked. */
export function Picture({ arranged, view, onView, picked, onPick }) {
  const frame = useRef(), canvas = useRef();
  const [width, setWidth] = useState(0);
  const [hover, setHover] = useState(null);
  const themeName = useSubject(theme);
  const lanes = useMemo(() => {
    const used = new Set(arranged.items.map((item) => item.lane));
    return LANES.filter((lane) => used.has(lane.id) || lane.id === "api" || lane.id === "bmc");
  }, [arranged]);
  const height = BAND + lanes.length * LANE + AXIS + OVERVIEW;
  const labels = width < 560 ? 0 : LABELS;
  const scale = useMemo(() => scaleOf(view, labels, width), [view, labels, width]);

  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => setWidth(frame.current.clientWidth));
    observer.observe(frame.current);
    setWidth(frame.current.clientWidth);
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    Object.assign(canvas.current, { width: width * ratio, height: height * ratio });
    const context = canvas.current.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw(context, { arranged, lanes, scale, labels, width, height, hover: hover?.item, picked, view });
  }, [arranged, lanes, scale, width, height, hover, picked, themeName]);

  const place = useRef();
  place.current = { view, scale, onView, labels };
  useEffect(() => {
    const element = canvas.current;
    // Listening by hand, because only so may the page's own scrolling be kept out.
    const onWheel = (event) => {
      event.preventDefault();
      const now = place.current;
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        const by = (event.deltaX || event.deltaY) / now.scale.perMs;
        now.onView({ from: now.view.from + by, to: now.view.to + by });
        return;
      }
      const at = now.scale.moment(event.clientX - element.getBoundingClientRect().left);
      now.onView(zoomed(now.view, at, Math.exp(event.deltaY * (event.ctrlKey ? 0.01 : 0.0022))));
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, []);

  const pointers = useRef(new Map());
  const moved = useRef(false);
  /** A press on the overview goes there. */
  const jump = (event) => {
    const box = canvas.current.getBoundingClientRect();
    if (event.clientY - box.top < height - OVERVIEW) return false;
    const share = Math.min(1, Math.max(0, (event.clientX - box.left - labels) / (width - 8 - labels)));
    const at = arranged.from + share * (arranged.to - arranged.from);
    const half = (view.to - view.from) / 2;
    onView({ from: at - half, to: at + half });
    return true;
  };
  const onPointerDown = (event) => {
    if (jump(event)) return;
    pointers.current.set(event.pointerId, event.clientX);
    moved.current = false;
    canvas.current.setPointerCapture(event.pointerId);
  };
  const onPointerMove = (event) => {
    const held = pointers.current;
    const left = canvas.current.getBoundingClientRect().left;
    if (held.size === 0) { setHover(itemAt(event, canvas.current, arranged, lanes, scale)); return; }
    const before = held.get(event.pointerId);
    if (before === undefined) return;
    held.set(event.pointerId, event.clientX);
    if (Math.abs(event.clientX - before) > 1) moved.current = true;
    if (held.size === 1) {
      const by = (before - event.clientX) / scale.perMs;
      onView({ from: view.from + by, to: view.to + by });
      setHover(null);
      return;
    }
    const [other] = [...held].filter(([id]) => id !== event.pointerId).map(([, x]) => x);
    const [was, is] = [Math.abs(before - other), Math.abs(event.clientX - other)];
    if (was > 0 && is > 0) onView(zoomed(view, scale.moment((event.clientX + other) / 2 - left), was / is));
  };
  const onPointerUp = (event) => {
    pointers.current.delete(event.pointerId);
    if (moved.current) return;
    const at = itemAt(event, canvas.current, arranged, lanes, scale);
    if (at?.item.seq) onPick(at.item.seq);
    else if (at?.item.state) onView(padded(at.item.start, at.item.end));
  };
  const onKeyDown = (event) => {
    const span = view.to - view.from;
    const middle = (view.from + view.to) / 2;
    const act = {
      ArrowLeft: () => onView({ from: view.from - span / 6, to: view.to - span / 6 }),
      ArrowRight: () => onView({ from: view.from + span / 6, to: view.to + span / 6 }),
      "+": () => onView(zoomed(view, middle, 0.6)), "=": () => onView(zoomed(view, middle, 0.6)),
      "-": () => onView(zoomed(view, middle, 1 / 0.6)),
      0: () => onView(padded(arranged.from, arranged.to)),
      Home: () => onView({ from: arranged.from, to: arranged.from + span }),
      End: () => onView({ from: arranged.to - span, to: arranged.to }),
    }[event.key];
    if (act) { event.preventDefault(); act(); }
  };

  return html`<div class="picture" ref=${frame} tabindex="0" role="application" onKeyDown=${onKeyDown}
      aria-label="Timeline from ${date(view.from)} to ${date(view.to)}. Arrow keys move, plus and minus zoom, zero shows all. The list below has the same in words.">
    <canvas ref=${canvas} style=${{ width: `${width}px`, height: `${height}px` }} onPointerDown=${onPointerDown}
      onPointerMove=${onPointerMove}
      onPointerUp=${onPointerUp} onPointerCancel=${(event) => pointers.current.delete(event.pointerId)}
        onPointerLeave=${() => setHover(null)}></canvas>
    ${hover && html`<${Hover} hover=${hover} width=${width} />`}
  </div>`;
}

function Hover({ hover: { item, x, y }, width }) {
  const span = item.end - item.start;
  return html`<div class="picture-tip" style=${{ left: `${Math.max(4, Math.min(x + 14, width - 330))}px`, top: `${y + 18}px` }}
    aria-hidden="true">
    <strong class=${item.bad ? "bad-text" : ""}>${item.title ?? item.state}</strong>
    ${item.detail && html`<span class="quiet">${item.detail}</span>`}
    <span class="faint number">${fineClock(item.start)}${span >= 1 ? ` · ${duration(span)}` : ""}</span></div>`;
}

/** The view with a little room on both sides. */
export function padded(from, to) {
  const room = Math.max(50, (to - from) * 0.03);
  return { from: from - room, to: to + room };
}

function zoomed({ from, to }, at, factor) {
  const span = Math.min(LONGEST, Math.max(SHORTEST, (to - from) * factor));
  const share = (at - from) / (to - from);
  return { from: at - span * share, to: at + span * (1 - share) };
}

function scaleOf({ from, to }, left, width) {
  const perMs = Math.max(1, width - left - 8) / (to - from);
  return { perMs, x: (moment) => left + (moment - from) * perMs, moment: (x) => from + (x - left) / perMs };
}

function itemAt(event, element, { items, states }, lanes, scale) {
  const box = element.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  if (y > box.height - OVERVIEW) return null;
  if (y < BAND) {
    const found = states.find((one) => scale.x(one.start) <= x && x <= scale.x(one.end));
    return found ? { item: found, x, y } : null;
  }
  const lane = lanes[Math.floor((y - BAND) / LANE)]?.id;
  let best = null, distance = 7;
  for (const item of items) {
    if (item.lane !== lane) continue;
    const [left, right] = [scale.x(item.start), Math.max(scale.x(item.end), scale.x(item.start) + 3)];
    const away = x < left ? left - x : x > right ? x - right : 0;
    // Of those under the pointer the shortest is meant: long ones are behind.
    if (away < distance || (away === 0 && best && item.end - item.start < best.end - best.start)) { best = item; distance = Math.min(away + 0.01, distance); }
  }
  return best ? { item: best, x, y } : null;
}

function draw(context, { arranged, lanes, scale, labels, width, height, hover, picked, view }) {
  const family = getComputedStyle(document.body).fontFamily;
  const right = width - 8;
  const bottom = height - AXIS - OVERVIEW;
  context.clearRect(0, 0, width, height);
  context.textBaseline = "middle";
  lanes.forEach((lane, index) => {
    const y = BAND + index * LANE;
    context.fillStyle = colour(index % 2 ? "--bg" : "--sunken");
    context.fillRect(labels, y, right - labels, LANE);
  });
  axis(context, view, scale, labels, right, bottom, family);

  context.save();
  context.beginPath();
  context.rect(labels, 0, right - labels, height);
  context.clip();
  context.font = `600 11.5px ${family}`;
  for (const one of arranged.states) {
    const [left, end] = [Math.max(scale.x(one.start), labels), Math.min(scale.x(one.end), right)];
    if (end < labels || left > right) continue;
    context.fillStyle = colour(`--state-${familyOf(one.state)}`);
    context.globalAlpha = one === hover ? 1 : 0.85;
    context.fillRect(left, 4, Math.max(1.5, end - left - 1), BAND - 9);
    context.globalAlpha = 1;
    write(context, one.state, left + 6, (BAND - 1) / 2, end - left - 10, "#101114");
  }
  lanes.forEach((lane, index) => {
    const y = BAND + index * LANE + 6;
    const size = LANE - 12;
    const paint = colour(lane.colour);
    context.font = `500 11px ${family}`;
    let filled = -Infinity;
    for (const item of arranged.items) {
      if (item.lane !== lane.id) continue;
      const [left, end] = [scale.x(item.start), scale.x(item.end)];
      if (end < labels - 4 || left > right + 4) continue;
      const wide = Math.max(3, end - left);
      const isMarked = item === hover || item.seq === picked;
      context.fillStyle = item.bad ? colour("--state-failed") : paint;
      context.globalAlpha = isMarked ? 1 : item.isWait ? 0.28 : wide > 24 ? 0.55 : 0.85;
      context.beginPath();
      context.roundRect(left, y, wide, size, Math.min(3, wide / 2));
      context.fill();
      context.globalAlpha = 1;
      if (isMarked) { context.strokeStyle = colour("--text"); context.lineWidth = 1.5; context.stroke(); }
      const from = Math.max(left, labels) + 5;
      if (wide > 40 && from > filled) {
        write(context, item.title, from, y + size / 2 + 0.5, Math.min(end, right) - from - 3, colour("--text"));
        filled = Math.min(end, right);
      }
    }
  });
  context.restore();
  overview(context, arranged, view, labels, right, height - OVERVIEW + 4);

  if (labels) {
    context.fillStyle = colour("--quiet");
    context.font = `500 12px ${family}`;
    context.fillText("State", 12, BAND / 2);
    context.fillText("Overview", 12, height - OVERVIEW + 7);
    lanes.forEach((lane, index) => {
      const y = BAND + index * LANE + LANE / 2;
      context.fillStyle = colour(lane.colour);
      context.beginPath();
      context.roundRect(0, y - 7, 3, 14, 1.5);
      context.fill();
      context.fillStyle = colour("--quiet");
      context.fillText(lane.label, 12, y);
    });
  }
}

/** The whole story as a strip, with the part that is shown framed. */
function overview(context, { states, from, to }, view, left, right, y) {
  const x = (moment) => left + Math.min(1, Math.max(0, (moment - from) / (to - from))) * (right - left);
  for (const one of states) {
    context.fillStyle = colour(`--state-${familyOf(one.state)}`);
    context.globalAlpha = 0.55;
    context.fillRect(x(one.start), y, Math.max(1, x(one.end) - x(one.start)), 6);
  }
  context.globalAlpha = 1;
  context.strokeStyle = colour("--text");
  context.lineWidth = 1.5;
  context.beginPath();
  context.roundRect(x(view.from) - 1, y - 2, Math.max(4, x(view.to) - x(view.from) + 2), 10, 3);
  context.stroke();
}

function write(context, text, x, y, room, paint) {
  if (room < 18) return;
  let shown = text;
  while (shown.length > 2 && context.measureText(shown).width > room) shown = `${shown.slice(0, -2)}…`;
  if (shown.length < 3 && shown !== text) return;
  context.fillStyle = paint;
  context.fillText(shown, x, y);
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1800e3,
  3600e3, 7200e3, 10800e3, 21600e3, 43200e3, 86400e3, 2 * 86400e3, 7 * 86400e3, 28 * 86400e3];

function axis(context, view, scale, left, right, bottom, family) {
  const step = STEPS.find((one) => one * scale.perMs > 92) ?? STEPS.at(-1);
  const offset = new Date(view.from).getTimezoneOffset() * 60000;
  context.font = `450 11px ${family}`;
  for (let at = Math.ceil((view.from - offset) / step) * step + offset; at < view.to; at += step) {
    const x = Math.round(scale.x(at)) + 0.5;
    if (x < left) continue;
    context.strokeStyle = colour("--line");
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x, BAND);
    context.lineTo(x, bottom + 4);
    context.stroke();
    context.fillStyle = colour("--faint");
    const text = step < 1000 ? fineClock(at) : step < 86400e3 ? clock(at) : new Date(at).toLocaleDateString();
    if (x + 60 < right) context.fillText(text, x + 3, bottom + 13);
  }
}
