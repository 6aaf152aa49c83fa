// SPDX-License-Identifier: Apache-2.0
// Timestamps and durations as text, and the hook that keeps them current. Timestamps are in
// milliseconds.

import { useEffect, useReducer } from "../vendor/preact-htm.js";

const MINUTE = 60,
  HOUR = 3600,
  DAY = 86400;

/**
 * `4 m 12 s`, `350 ms`, `2 d 3 h`: two units at most.
 * @param {number} ms
 */
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < MINUTE) return `${whole} s`;
  if (whole < HOUR) return twoUnits(Math.floor(whole / MINUTE), "m", whole % MINUTE, "s");
  if (whole < DAY)
    return twoUnits(Math.floor(whole / HOUR), "h", Math.floor((whole % HOUR) / MINUTE), "m");
  return twoUnits(Math.floor(whole / DAY), "d", Math.floor((whole % DAY) / HOUR), "h");
}

/**
 * @param {number} large
 * @param {string} largeUnit
 * @param {number} small
 * @param {string} smallUnit
 */
function twoUnits(large, largeUnit, small, smallUnit) {
  return small ? `${large} ${largeUnit} ${small} ${smallUnit}` : `${large} ${largeUnit}`;
}

/**
 * The time since a timestamp in one unit: `just now`, `12 s ago`, `3 m ago`, `5 h ago`, `2 d ago`.
 * @param {number} timestamp
 */
export function ago(timestamp, now = Date.now()) {
  const seconds = Math.round((now - timestamp) / 1000);
  if (seconds < 2) return "just now";
  if (seconds < MINUTE) return `${seconds} s ago`;
  if (seconds < HOUR) return `${Math.floor(seconds / MINUTE)} m ago`;
  if (seconds < DAY) return `${Math.floor(seconds / HOUR)} h ago`;
  return `${Math.floor(seconds / DAY)} d ago`;
}

/**
 * The time until a timestamp: `3:07` or `1:00:00`; null if it is reached.
 * @param {number} until
 */
export function countdown(until, now = Date.now()) {
  const left = Math.round((until - now) / 1000);
  if (left <= 0) return null;
  const hours = Math.floor(left / HOUR);
  const minutes = Math.floor((left % HOUR) / MINUTE);
  const seconds = String(left % MINUTE).padStart(2, "0");
  return hours
    ? `${hours}:${String(minutes).padStart(2, "0")}:${seconds}`
    : `${minutes}:${seconds}`;
}

/**
 * The time until a deadline in words: `timeout in 19:59`.
 * @param {number} until
 */
export function timeoutText(until, now = Date.now()) {
  const left = countdown(until, now);
  return left === null ? "timeout reached" : `timeout in ${left}`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
const DATE = new Intl.DateTimeFormat(undefined, {
  year: "numeric",
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});

/** @param {number} timestamp */
export const clock = (timestamp) => CLOCK.format(timestamp);
/** @param {number} timestamp */
export const date = (timestamp) => DATE.format(timestamp);
/**
 * The time of day with milliseconds.
 * @param {number} timestamp
 */
export const preciseClock = (timestamp) =>
  `${CLOCK.format(timestamp)}.${String(new Date(timestamp).getMilliseconds()).padStart(3, "0")}`;

/** Rerenders the component every second while `on`. */
export function useEverySecond(on = true) {
  const [, rerender] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    if (!on) return undefined;
    const timer = setInterval(() => rerender(), 1000);
    return () => clearInterval(timer);
  }, [on]);
}
