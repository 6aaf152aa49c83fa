// SPDX-License-Identifier: Apache-2.0
// The timeline as a chart: a band of states, lanes of marks and spans, and an overview. It is zoomed and
// panned by wheel, pinch, drag and keys. The list below has the same content for screen readers.

import {
  html,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "../../../vendor/preact-htm.js";
import { useObservable } from "../../observable.js";
import { stateLabel } from "../../states.js";
import { theme } from "../../theme.js";
import { date, duration, preciseClock } from "../../times.js";
import { BAND, LANE_HEIGHT, OVERVIEW, chartHeight, drawChart } from "./chart_drawing.js";
import { createScale, withPadding, zoomView } from "./chart_scale.js";
import { LANES } from "./entries.js";

export { withPadding } from "./chart_scale.js";

/** The width of the lane labels; narrow charts have none. */
const LABEL_WIDTH = 128,
  MIN_WIDTH_FOR_LABELS = 560;
/** How far from an item the pointer can be, in pixels. */
const HIT_DISTANCE = 7;
/** The share of the view that an arrow key pans by, and the zoom factor of a key. */
const PAN_SHARE = 1 / 6,
  ZOOM_STEP = 0.6;

/**
 * `view` is the visible time range; `onView` changes it; `onSelect` gets the clicked entry.
 * @param {object} props
 * @param {import("./entries.js").TimelineLayout} props.layout
 * @param {{ from: number, to: number }} props.view
 * @param {Function} props.onView
 * @param {number | null} props.selected
 * @param {Function} props.onSelect
 */
export function TimelineChart({ layout, view, onView, selected, onSelect }) {
  const frame = useRef(),
    canvas = useRef();
  const [width, setWidth] = useState(0);
  const [hover, setHover] = useState(/** @type {any} */ (null));
  const themeName = useObservable(theme);
  const lanes = useMemo(() => {
    const used = new Set(layout.items.map((item) => item.lane));
    return LANES.filter(({ id }) => used.has(id) || id === "api" || id === "bmc");
  }, [layout]);
  const height = chartHeight(lanes.length);
  const labelWidth = width < MIN_WIDTH_FOR_LABELS ? 0 : LABEL_WIDTH;
  const scale = useMemo(() => createScale(view, labelWidth, width), [view, labelWidth, width]);

  useLayoutEffect(() => {
    const measure = () => setWidth(frame.current.clientWidth);
    const observer = new ResizeObserver(measure);
    observer.observe(frame.current);
    measure();
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    Object.assign(canvas.current, { width: width * ratio, height: height * ratio });
    const context = canvas.current.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    drawChart(context, {
      layout,
      lanes,
      scale,
      labelWidth,
      width,
      height,
      hovered: hover?.item,
      selected,
      view,
    });
  }, [layout, lanes, scale, width, height, hover, selected, themeName]);

  const latest = useRef(/** @type {any} */ (null));
  latest.current = { view, scale, onView };
  useEffect(() => {
    const element = canvas.current;
    // Not an `onWheel` attribute, because only a non-passive listener can prevent scrolling.
    const onWheel = (event) => {
      event.preventDefault();
      const now = latest.current;
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        const by = (event.deltaX || event.deltaY) / now.scale.perMs;
        now.onView({ from: now.view.from + by, to: now.view.to + by });
        return;
      }
      const timestamp = now.scale.toTime(event.clientX - element.getBoundingClientRect().left);
      const factor = Math.exp(event.deltaY * (event.ctrlKey ? 0.01 : 0.0022));
      now.onView(zoomView(now.view, timestamp, factor));
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, []);

  const pointers = useRef(/** @type {Map<number, number>} */ (new Map())).current;
  const hasMoved = useRef(false);
  const itemUnder = (event) => itemAt(event, canvas.current, layout, lanes, scale);
  /** Centres the view on a press in the overview; returns whether it was one. */
  const jumpToOverview = (event) => {
    const box = canvas.current.getBoundingClientRect();
    if (event.clientY - box.top < height - OVERVIEW) return false;
    const position = (event.clientX - box.left - labelWidth) / (width - 8 - labelWidth);
    const share = Math.min(1, Math.max(0, position));
    const centre = layout.from + share * (layout.to - layout.from);
    const half = (view.to - view.from) / 2;
    onView({ from: centre - half, to: centre + half });
    return true;
  };
  const onPointerDown = (event) => {
    if (jumpToOverview(event)) return;
    pointers.set(event.pointerId, event.clientX);
    hasMoved.current = false;
    canvas.current.setPointerCapture(event.pointerId);
  };
  const onPointerMove = (event) => {
    if (pointers.size === 0) {
      setHover(itemUnder(event));
      return;
    }
    const before = pointers.get(event.pointerId);
    if (before === undefined) return;
    pointers.set(event.pointerId, event.clientX);
    if (Math.abs(event.clientX - before) > 1) hasMoved.current = true;
    if (pointers.size === 1) {
      const by = (before - event.clientX) / scale.perMs;
      onView({ from: view.from + by, to: view.to + by });
      setHover(null);
      return;
    }
    const [[, other]] = [...pointers].filter(([id]) => id !== event.pointerId);
    const oldDistance = Math.abs(before - other),
      newDistance = Math.abs(event.clientX - other);
    if (oldDistance === 0 || newDistance === 0) return;
    const middle = (event.clientX + other) / 2 - canvas.current.getBoundingClientRect().left;
    onView(zoomView(view, scale.toTime(middle), oldDistance / newDistance));
  };
  const onPointerUp = (event) => {
    pointers.delete(event.pointerId);
    if (hasMoved.current) return;
    const item = itemUnder(event)?.item;
    if (!item) return;
    if ("seq" in item) onSelect(item.seq);
    else onView(withPadding(item.start, item.end));
  };
  const onKeyDown = (event) => {
    const next = keyView(event.key, view, layout);
    if (!next) return;
    event.preventDefault();
    onView(next);
  };

  return html`<div class="timeline-chart" ref=${frame} tabindex="0" role="application" onKeyDown=${onKeyDown}
      aria-label="Timeline from ${date(view.from)} to ${date(view.to)}. Arrow keys pan, plus and minus zoom, zero shows all. The list below has the same entries.">
    <canvas ref=${canvas} style=${{ width: `${width}px`, height: `${height}px` }} onPointerDown=${onPointerDown}
      onPointerMove=${onPointerMove} onPointerUp=${onPointerUp} onPointerCancel=${(event) => pointers.delete(event.pointerId)}
        onPointerLeave=${() => setHover(null)}></canvas>
    ${hover && html`<${ChartTooltip} hover=${hover} width=${width} />`}
  </div>`;
}

/**
 * The view after a key press, or null if the key does nothing.
 * @param {string} key
 * @param {{ from: number, to: number }} view
 * @param {{ from: number, to: number }} whole
 */
function keyView(key, view, whole) {
  const span = view.to - view.from;
  const middle = (view.from + view.to) / 2;
  const pan = (by) => ({ from: view.from + by, to: view.to + by });
  switch (key) {
    case "ArrowLeft":
      return pan(-span * PAN_SHARE);
    case "ArrowRight":
      return pan(span * PAN_SHARE);
    case "+":
    case "=":
      return zoomView(view, middle, ZOOM_STEP);
    case "-":
      return zoomView(view, middle, 1 / ZOOM_STEP);
    case "0":
      return withPadding(whole.from, whole.to);
    case "Home":
      return { from: whole.from, to: whole.from + span };
    case "End":
      return { from: whole.to - span, to: whole.to };
    default:
      return null;
  }
}

/** @param {{ hover: any, width: number }} props */
function ChartTooltip({ hover: { item, x, y }, width }) {
  const span = item.end - item.start;
  const left = Math.max(4, Math.min(x + 14, width - 330));
  return html`<div class="chart-tooltip" style=${{ left: `${left}px`, top: `${y + 18}px` }} aria-hidden="true">
    <strong class=${item.isError ? "bad-text" : ""}>${item.title ?? stateLabel(item.state)}</strong>
    ${item.detail && html`<span class="quiet">${item.detail}</span>`}
    <span class="faint number">${preciseClock(item.start)}${span >= 1 ? ` · ${duration(span)}` : ""}</span></div>`;
}

/**
 * The item or state under the pointer, with its position, or null.
 * @param {PointerEvent} event
 * @param {HTMLElement} element
 * @param {import("./entries.js").TimelineLayout} layout
 * @param {typeof LANES} lanes
 * @param {import("./chart_scale.js").TimeScale} scale
 */
function itemAt(event, element, { items, states }, lanes, scale) {
  const box = element.getBoundingClientRect();
  const x = event.clientX - box.left,
    y = event.clientY - box.top;
  if (y > box.height - OVERVIEW) return null;
  if (y < BAND) {
    const state = states.find(({ start, end }) => scale.toX(start) <= x && x <= scale.toX(end));
    return state ? { item: state, x, y } : null;
  }
  const lane = lanes[Math.floor((y - BAND) / LANE_HEIGHT)]?.id;
  /** @type {import("./entries.js").TimelineItem | null} */
  let best = null;
  let bestDistance = HIT_DISTANCE;
  for (const item of items) {
    if (item.lane !== lane) continue;
    const left = scale.toX(item.start),
      right = Math.max(scale.toX(item.end), left + 3);
    const distance = Math.max(0, left - x, x - right);
    // Of overlapping items the shortest is in front.
    const isShorter = best !== null && item.end - item.start < best.end - best.start;
    if (distance < bestDistance || (distance === 0 && isShorter)) {
      best = item;
      bestDistance = Math.min(distance + 0.01, bestDistance);
    }
  }
  return best ? { item: best, x, y } : null;
}
