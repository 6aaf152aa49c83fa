// SPDX-License-Identifier: Apache-2.0
// The stream of events, and whether it is up.
//
// A tab that nobody looks at closes its stream: browsers allow six connections to a server, and tabs
// that are kept open all day must not use them up. What happened meanwhile is caught up on return,
// since every event has a number and the stream is taken up after the last one seen.

import { Subject } from "./subject.js";
import { lookWhoWeAre } from "./session.js";

/** `connecting`, `live` or `lost`; `idle` while no view follows anything. */
export const connection = new Subject("idle");

const KINDS = ["enrolled", "changed", "removed", "asked", "entered", "did", "failed", "bmc_calls",
  "waiting", "power", "maintenance", "noted", "seen", "heard", "entry"];
const RETRY_MS = 2000, LONGEST_RETRY_MS = 30_000;

/** How long to wait after a failure, if `pause` was waited before: twice as long, within bounds. */
export const longer = (pause) => Math.min(LONGEST_RETRY_MS, Math.max(RETRY_MS, pause * 2));

let wanted = null;
let stream = null;
let last = null;
let retry = null;
let pause = 0;

/**
 * Follows what happens after event `after`, to one node or to all, until the returned function is
 * called. `hear` gets each event's kind and text: whoever does not need the text does not parse it.
 * Whoever does not need each event either gives `catchUp`: it is called before the stream is taken up
 * again, gets what was missed in its own way, and gives the number of the event to go on after.
 */
export function follow({ after, node = null, kinds = KINDS, hear, catchUp = null }) {
  close();
  last = after;
  wanted = { node, kinds, hear, catchUp };
  if (connection.value === "idle") connection.set("connecting");
  if (!document.hidden) open();
  const mine = wanted;
  return () => { if (wanted === mine) { wanted = null; close(); connection.set("idle"); } };
}

async function reopen() {
  const mine = wanted;
  if (mine.catchUp) {
    const reached = await mine.catchUp().catch(() => null);
    if (wanted !== mine || document.hidden || stream) return;
    if (reached === null) { lose(); return; }
    last = reached;
  }
  open();
}

function open() {
  const query = new URLSearchParams();
  if (last !== null) query.set("after", last);
  if (wanted.node) query.set("node", wanted.node);
  const mine = stream = new EventSource(`/v1/ferrite/events?${query}`);
  const { kinds, hear } = wanted;
  mine.onopen = () => { pause = 0; connection.set("live"); };
  // The browser would try again by itself, but gives up on some answers, such as a 401.
  mine.onerror = lose;
  for (const kind of kinds) {
    mine.addEventListener(kind, (event) => {
      last = Number(event.lastEventId);
      hear(kind, event.data, last);
    });
  }
}

function lose() {
  connection.set("lost");
  close();
  pause = longer(pause);
  retry = setTimeout(async () => {
    const isThere = await lookWhoWeAre().then(() => true, () => false);
    if (!wanted || document.hidden || stream) return;
    if (isThere) reopen(); else lose();
  }, pause);
}

function close() {
  clearTimeout(retry);
  stream?.close();
  stream = null;
}

addEventListener("offline", () => { if (wanted && stream) lose(); });

document.addEventListener("visibilitychange", () => {
  if (!wanted) return;
  if (document.hidden) {
    close();
  } else if (!stream) {
    pause = 0;
    connection.set("connecting");
    reopen();
  }
});
