// SPDX-License-Identifier: Apache-2.0
// Draws the timeline chart on a canvas.

import { familyOf, stateLabel } from "../../states.js";
import { colour } from "../../theme.js";
import { clock, preciseClock } from "../../times.js";
import { axisTicks } from "./chart_scale.js";

/** The heights of the parts of the chart, in pixels. */
export const BAND = 26,
  LANE_HEIGHT = 30,
  OVERVIEW = 20;
const AXIS = 24;
const RIGHT_MARGIN = 8;
const SECOND = 1000,
  DAY = 86400e3;

/** @param {number} lanes */
export const chartHeight = (lanes) => BAND + lanes * LANE_HEIGHT + AXIS + OVERVIEW;

/**
 * @typedef {object} Chart
 * @property {import("./entries.js").TimelineLayout} layout
 * @property {{ id: string, label: string, colour: string }[]} lanes
 * @property {import("./chart_scale.js").TimeScale} scale
 * @property {number} labelWidth
 * @property {number} width
 * @property {number} height
 * @property {object | undefined} hovered
 * @property {number | null} selected
 * @property {import("./chart_scale.js").TimeRange} view
 */

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Chart} chart
 */
export function drawChart(context, chart) {
  const { lanes, labelWidth, width, height } = chart;
  const right = width - RIGHT_MARGIN;
  const family = getComputedStyle(document.body).fontFamily;
  context.clearRect(0, 0, width, height);
  context.textBaseline = "middle";
  lanes.forEach((_, index) => {
    context.fillStyle = colour(index % 2 ? "--bg" : "--sunken");
    context.fillRect(labelWidth, laneTop(index), right - labelWidth, LANE_HEIGHT);
  });
  drawAxis(context, chart, right, family);
  context.save();
  context.beginPath();
  context.rect(labelWidth, 0, right - labelWidth, height);
  context.clip();
  drawStates(context, chart, right, family);
  drawItems(context, chart, right, family);
  context.restore();
  drawOverview(context, chart, right);
  if (labelWidth) drawLabels(context, chart, family);
}

/** @param {number} index */
const laneTop = (index) => BAND + index * LANE_HEIGHT;

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Chart} chart
 * @param {number} right
 * @param {string} family
 */
function drawStates(context, { layout, scale, labelWidth, hovered }, right, family) {
  context.font = `600 11.5px ${family}`;
  for (const span of layout.states) {
    const left = Math.max(scale.toX(span.start), labelWidth),
      end = Math.min(scale.toX(span.end), right);
    if (end < labelWidth || left > right) continue;
    context.fillStyle = colour(`--state-${familyOf(span.state)}`);
    context.globalAlpha = span === hovered ? 1 : 0.85;
    context.fillRect(left, 4, Math.max(1.5, end - left - 1), BAND - 9);
    context.globalAlpha = 1;
    drawText(context, stateLabel(span.state), left + 6, (BAND - 1) / 2, end - left - 10, "#101114");
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Chart} chart
 * @param {number} right
 * @param {string} family
 */
function drawItems(
  context,
  { layout, lanes, scale, labelWidth, hovered, selected },
  right,
  family,
) {
  context.font = `500 11px ${family}`;
  const size = LANE_HEIGHT - 12;
  lanes.forEach((lane, index) => {
    const y = laneTop(index) + 6;
    // Labels must not overlap.
    let labelEnd = -Infinity;
    for (const item of layout.items) {
      if (item.lane !== lane.id) continue;
      const left = scale.toX(item.start),
        end = scale.toX(item.end);
      if (end < labelWidth - 4 || left > right + 4) continue;
      const itemWidth = Math.max(3, end - left);
      const isMarked = item === hovered || item.seq === selected;
      context.fillStyle = colour(item.isError ? "--state-failed" : lane.colour);
      context.globalAlpha = isMarked ? 1 : item.isWait ? 0.28 : itemWidth > 24 ? 0.55 : 0.85;
      context.beginPath();
      context.roundRect(left, y, itemWidth, size, Math.min(3, itemWidth / 2));
      context.fill();
      context.globalAlpha = 1;
      if (isMarked) {
        context.strokeStyle = colour("--text");
        context.lineWidth = 1.5;
        context.stroke();
      }
      const textStart = Math.max(left, labelWidth) + 5,
        textEnd = Math.min(end, right);
      if (itemWidth > 40 && textStart > labelEnd) {
        const middle = y + size / 2 + 0.5;
        drawText(context, item.title, textStart, middle, textEnd - textStart - 3, colour("--text"));
        labelEnd = textEnd;
      }
    }
  });
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Chart} chart
 * @param {string} family
 */
function drawLabels(context, { lanes, height }, family) {
  context.fillStyle = colour("--quiet");
  context.font = `500 12px ${family}`;
  context.fillText("State", 12, BAND / 2);
  context.fillText("Overview", 12, height - OVERVIEW + 7);
  lanes.forEach((lane, index) => {
    const y = laneTop(index) + LANE_HEIGHT / 2;
    context.fillStyle = colour(lane.colour);
    context.beginPath();
    context.roundRect(0, y - 7, 3, 14, 1.5);
    context.fill();
    context.fillStyle = colour("--quiet");
    context.fillText(lane.label, 12, y);
  });
}

/**
 * The states of the whole timeline, with a frame around the visible part.
 * @param {CanvasRenderingContext2D} context
 * @param {Chart} chart
 * @param {number} right
 */
function drawOverview(context, { layout: { states, from, to }, view, labelWidth, height }, right) {
  const y = height - OVERVIEW + 4;
  const toX = (/** @type {number} */ timestamp) => {
    const share = Math.min(1, Math.max(0, (timestamp - from) / (to - from)));
    return labelWidth + share * (right - labelWidth);
  };
  context.globalAlpha = 0.55;
  for (const { state, start, end } of states) {
    context.fillStyle = colour(`--state-${familyOf(state)}`);
    context.fillRect(toX(start), y, Math.max(1, toX(end) - toX(start)), 6);
  }
  context.globalAlpha = 1;
  context.strokeStyle = colour("--text");
  context.lineWidth = 1.5;
  context.beginPath();
  const left = toX(view.from);
  context.roundRect(left - 1, y - 2, Math.max(4, toX(view.to) - left + 2), 10, 3);
  context.stroke();
}

/**
 * Draws a text, shortened to the available width; nothing if there is no space.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {string} fill
 */
function drawText(context, text, x, y, width, fill) {
  if (width < 18) return;
  let short = text;
  while (short.length > 2 && context.measureText(short).width > width)
    short = `${short.slice(0, -2)}…`;
  if (short.length < 3 && short !== text) return;
  context.fillStyle = fill;
  context.fillText(short, x, y);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Chart} chart
 * @param {number} right
 * @param {string} family
 */
function drawAxis(context, { view, scale, labelWidth, height }, right, family) {
  const bottom = height - AXIS - OVERVIEW;
  const offset = new Date(view.from).getTimezoneOffset() * 60_000;
  const { step, ticks } = axisTicks(view, scale.perMs, offset);
  context.font = `450 11px ${family}`;
  for (const timestamp of ticks) {
    const x = Math.round(scale.toX(timestamp)) + 0.5;
    if (x < labelWidth) continue;
    context.strokeStyle = colour("--line");
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x, BAND);
    context.lineTo(x, bottom + 4);
    context.stroke();
    context.fillStyle = colour("--faint");
    if (x + 60 < right) context.fillText(tickLabel(timestamp, step), x + 3, bottom + 13);
  }
}

/**
 * @param {number} timestamp
 * @param {number} step
 */
function tickLabel(timestamp, step) {
  if (step < SECOND) return preciseClock(timestamp);
  return step < DAY ? clock(timestamp) : new Date(timestamp).toLocaleDateString();
}
