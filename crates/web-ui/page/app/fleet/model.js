// SPDX-License-Identifier: Apache-2.0
// All machines, kept as the server has them.
//
// One request gets them all, with the number of the last event they include. After that the event
// stream only says that something happened; what it came to is asked of the server, for the machines
// it happened to and no more often than a few times a second. So the page never guesses what an event
// means, and a thousand events a second cost it a request or two.

import { get } from "../api.js";
import { follow, longer } from "../live.js";
import { Subject } from "../subject.js";
import { complain } from "../toasts.js";

const ASK_EVERY_MS = 350;
const ALL_AGAIN_MS = 5 * 60 * 1000;
/** Kinds of events after which a machine's row is another one. */
const TELLING = ["enrolled", "changed", "removed", "asked", "entered", "waiting", "power", "maintenance", "failed"];

/**
 * `{rows, byId, verbs, ready, changed, asOf}`: the rows in order of name, the same by UUID, which verbs
 * each state allows, which rows changed last and when, and the moment the rows are at least as new as.
 */
export const fleet = new Subject({ rows: [], byId: new Map(), verbs: {}, ready: false, changed: new Map(), asOf: -Infinity });

let users = 0;
let stop = null;
let seq = null;
let queue = Promise.resolve();
let asking = false;
let again = false;
let pause = ASK_EVERY_MS;
let timer = null;
let renewal = null;

/** Keeps the fleet up to date until the returned function is called. */
export function keepFleetLive() {
  users += 1;
  if (users === 1) start();
  return () => {
    users -= 1;
    if (users === 0) end();
  };
}

/** Gets the fleet as it is now, for those who only want to search it. */
export const fleetOnce = () => ask();

/** Asks for changes soon, although no event came: something was just asked of the server. */
export function expectChanges() {
  if (users > 0) soon();
}

function start() {
  ask();
  renewal = setInterval(() => { if (!document.hidden) ask({ whole: true }); }, ALL_AGAIN_MS);
}

function end() {
  stop?.();
  stop = null;
  clearTimeout(timer);
  timer = null;
  again = false;
  pause = ASK_EVERY_MS;
  clearInterval(renewal);
}

function soon() {
  if (asking) { again = true; return; }
  timer ??= setTimeout(() => { timer = null; ask(); }, pause);
}

/**
 * Asks for what changed, or for all; gives whether there was an answer. One request at a time: of two at
 * once, the older answer may come last.
 */
function ask({ whole = false } = {}) {
  queue = queue.then(async () => {
    asking = true;
    // What was to be asked later is asked now.
    clearTimeout(timer);
    timer = null;
    const isAnswered = await (whole || seq === null ? getAll() : getChanges()).then(() => true, (error) => {
      complain(error);
      return false;
    });
    asking = false;
    pause = isAnswered ? ASK_EVERY_MS : longer(pause);
    if (users === 0) return isAnswered;
    if (isAnswered) stop ??= follow({ after: seq, kinds: TELLING, hear: soon, catchUp });
    // No event need come that would make us ask again for what we did not get.
    if (again || !isAnswered) { again = false; soon(); }
    return isAnswered;
  });
  return queue;
}

/** What hours of events came to is one answer; they need not be heard one by one. */
async function catchUp() {
  return await ask() ? seq : null;
}

async function getAll() {
  const asOf = performance.now();
  const answer = await get("/v1/ferrite/fleet");
  const rows = decode(answer);
  seq = answer.seq;
  fleet.set({
    rows: rows.sort(byName), byId: new Map(rows.map((row) => [row.uuid, row])),
    verbs: answer.verbs ?? {}, ready: true, changed: new Map(), asOf,
  });
}

async function getChanges() {
  const asOf = performance.now();
  const answer = await get(`/v1/ferrite/fleet?after=${seq}`);
  // The database is an older one than before: it was restored.
  if (answer.seq < seq) { await getAll(); return; }
  seq = answer.seq;
  const news = decode(answer);
  const { value } = fleet;
  if (answer.whole) {
    fleet.set({ ...value, rows: news.sort(byName), byId: new Map(news.map((row) => [row.uuid, row])), asOf });
    return;
  }
  merge({ ...value, asOf }, news, answer.gone ?? []);
}

function merge(value, news, gone) {
  const now = performance.now();
  const { byId, changed } = value;
  let { rows } = value;
  let reorder = gone.length > 0;
  for (const row of news) {
    const before = byId.get(row.uuid);
    if (!before || before.name !== row.name) reorder = true;
    if (before && (before.provision_state !== row.provision_state || before.power_state !== row.power_state)) {
      changed.set(row.uuid, now);
    }
    byId.set(row.uuid, row);
  }
  for (const uuid of gone) byId.delete(uuid);
  if (reorder || news.length) rows = reorder ? [...byId.values()].sort(byName) : rows.map((row) => byId.get(row.uuid));
  for (const [uuid, at] of changed) if (now - at > 5000) changed.delete(uuid);
  fleet.set({ ...value, rows });
}

/** The rows of an answer as objects. Moments become numbers, since they are compared every second. */
export function decode({ fields, nodes }) {
  return nodes.map((values) => {
    const row = {};
    for (let index = 0; index < fields.length; index++) row[fields[index]] = values[index];
    row.until = row.until ? Date.parse(row.until) : null;
    row.since = row.since ? Date.parse(row.since) : null;
    row.label = row.name ?? row.uuid;
    row.rack ??= rackOfName(row.name);
    row.sought = `${row.label}\n${row.uuid}\n${row.provision_state}\n${row.owner ?? ""}\n${row.resource_class ?? ""}\n${row.rack ?? ""}`.toLowerCase();
    return row;
  });
}

/** `r01-u07` stands in `r01`: a name up to its last hyphen, where nothing else says the rack. */
function rackOfName(name) {
  const at = name?.lastIndexOf("-") ?? -1;
  return at > 0 ? name.slice(0, at) : null;
}

const COLLATOR = new Intl.Collator("en", { numeric: true });
export const compare = (one, other) => COLLATOR.compare(one, other);
const plain = /^[a-z0-9._-]*$/;
function byName(one, other) {
  // Comparing as text is ten times faster and the same for names of equal length.
  if (one.label.length === other.label.length && plain.test(one.label) && plain.test(other.label)) {
    return one.label < other.label ? -1 : one.label > other.label ? 1 : 0;
  }
  return compare(one.label, other.label);
}
