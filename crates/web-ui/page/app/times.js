// SPDX-License-Identifier: Apache-2.0
// Moments and durations in words, and the clock that makes them move.

import { useEffect, useReducer } from "../vendor/preact-htm.js";

const MINUTE = 60, HOUR = 3600, DAY = 86400;

/** `4 m 12 s`, `350 ms`, `2 d 3 h`: two units at most. */
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < MINUTE) return `${whole} s`;
  if (whole < HOUR) return pair(Math.floor(whole / MINUTE), "m", whole % MINUTE, "s");
  if (whole < DAY) return pair(Math.floor(whole / HOUR), "h", Math.floor((whole % HOUR) / MINUTE), "m");
  return pair(Math.floor(whole / DAY), "d", Math.floor((whole % DAY) / HOUR), "h");
}

function pair(large, largeUnit, small, smallUnit) {
  return small ? `${large} ${largeUnit} ${small} ${smallUnit}` : `${large} ${largeUnit}`;
}

/** How long ago, in one unit: `just now`, `12 s`, `3 m`, `5 h`, `2 d`. */
export function ago(moment, now = Date.now()) {
  const seconds = Math.round((now - moment) / 1000);
  if (seconds < 2) return "just now";
  if (seconds < MINUTE) return `${seconds} s ago`;
  if (seconds < HOUR) return `${Math.floor(seconds / MINUTE)} m ago`;
  if (seconds < DAY) return `${Math.floor(seconds / HOUR)} h ago`;
  return `${Math.floor(seconds / DAY)} d ago`;
}

/** What is left until a moment: `3:07`, or how far it is past. */
export function countdown(until, now = Date.now()) {
  const left = Math.round((until - now) / 1000);
  if (left <= 0) return "any moment";
  const hours = Math.floor(left / HOUR);
  const minutes = Math.floor((left % HOUR) / MINUTE);
  const seconds = String(left % MINUTE).padStart(2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${seconds}` : `${minutes}:${seconds}`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const DATE = new Intl.DateTimeFormat(undefined,
  { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

export const clock = (moment) => CLOCK.format(moment);
export const date = (moment) => DATE.format(moment);
/** With milliseconds, for timelines. */
export const fineClock = (moment) => `${CLOCK.format(moment)}.${String(new Date(moment).getMilliseconds()).padStart(3, "0")}`;

/** Draws the view anew every second while `on`. */
export function useSeconds(on = true) {
  const [, redraw] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    if (!on) return undefined;
    const timer = setInterval(redraw, 1000);
    return () => clearInterval(timer);
  }, [on]);
}
