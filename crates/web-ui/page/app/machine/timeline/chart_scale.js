// SPDX-License-Identifier: Apache-2.0
// The time scale of the timeline chart.

/** The shortest and the longest visible time range, in milliseconds. */
const MIN_SPAN = 20,
  MAX_SPAN = 366 * 86400e3;
/** The space at the right edge, in pixels. */
const RIGHT_MARGIN = 8;

/** @typedef {{ from: number, to: number }} TimeRange */
/**
 * @typedef {object} TimeScale
 * @property {number} perMs pixels per millisecond
 * @property {(timestamp: number) => number} toX
 * @property {(x: number) => number} toTime
 */

/**
 * @param {TimeRange} view
 * @param {number} left
 * @param {number} width
 * @returns {TimeScale}
 */
export function createScale({ from, to }, left, width) {
  const perMs = Math.max(1, width - left - RIGHT_MARGIN) / (to - from);
  return {
    perMs,
    toX: (timestamp) => left + (timestamp - from) * perMs,
    toTime: (x) => from + (x - left) / perMs,
  };
}

/**
 * The time range with some space at both ends.
 * @param {number} from
 * @param {number} to
 * @returns {TimeRange}
 */
export function withPadding(from, to) {
  const padding = Math.max(50, (to - from) * 0.03);
  return { from: from - padding, to: to + padding };
}

/**
 * Scales a time range around a timestamp, which keeps its position.
 * @param {TimeRange} view
 * @param {number} timestamp
 * @param {number} factor
 * @returns {TimeRange}
 */
export function zoomView({ from, to }, timestamp, factor) {
  const span = Math.min(MAX_SPAN, Math.max(MIN_SPAN, (to - from) * factor));
  const share = (timestamp - from) / (to - from);
  return { from: timestamp - span * share, to: timestamp + span * (1 - share) };
}

const SECOND = 1000,
  MINUTE = 60 * SECOND,
  HOUR = 60 * MINUTE,
  DAY = 24 * HOUR;
const TICK_STEPS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500],
  ...[1, 2, 5, 10, 15, 30].map((seconds) => seconds * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * MINUTE),
  ...[1, 2, 3, 6, 12].map((hours) => hours * HOUR),
  ...[1, 2, 7, 28].map((days) => days * DAY),
];
/** The smallest distance between ticks, in pixels. */
const MIN_TICK_DISTANCE = 92;

/**
 * The ticks of the time axis: multiples of a round step in local time.
 * @param {TimeRange} view
 * @param {number} perMs
 * @param {number} timezoneOffsetMs
 */
export function axisTicks({ from, to }, perMs, timezoneOffsetMs) {
  const step =
    TICK_STEPS.find((candidate) => candidate * perMs > MIN_TICK_DISTANCE) ??
    TICK_STEPS[TICK_STEPS.length - 1];
  const ticks = [];
  const first = Math.ceil((from - timezoneOffsetMs) / step) * step + timezoneOffsetMs;
  for (let timestamp = first; timestamp < to; timestamp += step) ticks.push(timestamp);
  return { step, ticks };
}
