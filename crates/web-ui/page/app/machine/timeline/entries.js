// SPDX-License-Identifier: Apache-2.0
// Journal entries as texts, and as items of the timeline chart: marks and spans in lanes, the band of
// states, and the jobs.

import { EVENT } from "../../generated.js";
import { isJobEnd, stateLabel } from "../../states.js";
import { clock, duration } from "../../times.js";
import { describeWait, nextAction } from "../../wait_reasons.js";

/** The lanes from top to bottom; the chart omits empty ones. */
export const LANES = [
  { id: "api", label: "API", colour: "--lane-api" },
  { id: "decision", label: "Decisions", colour: "--lane-decision" },
  { id: "step", label: "Steps", colour: "--state-deploy" },
  { id: "bmc", label: "BMC calls", colour: "--lane-bmc" },
  { id: "network", label: "DHCP, TFTP, HTTP", colour: "--lane-network" },
  { id: "agent", label: "Agent", colour: "--lane-agent" },
  { id: "console", label: "Console", colour: "--lane-console" },
];

/** @param {string} id */
export const laneLabel = (id) => LANES.find((lane) => lane.id === id)?.label ?? id;

/** @typedef {Pick<JournalEntry, "actor" | "event">} Described */

/**
 * The text of each kind of event.
 * @type {Record<EventKind, (event: any, actor: JournalActor) => EntryText>}
 */
const DESCRIPTIONS = {
  [EVENT.ENROLLED]: (_, actor) => ({ lane: "api", title: "enrolled", detail: byUser(actor) }),
  [EVENT.REMOVED]: (_, actor) => ({ lane: "api", title: "removed", detail: byUser(actor) }),
  [EVENT.CHANGED]: ({ fields }, actor) => ({
    lane: actor.kind === "user" ? "api" : "decision",
    title: `changed ${fields.join(", ")}`,
    detail: byUser(actor),
  }),
  [EVENT.REQUESTED]: ({ target }, actor) => ({
    lane: "api",
    title: `requested ${target}`,
    detail: byUser(actor),
  }),
  [EVENT.STATE_CHANGED]: ({ to, reason }) => ({
    lane: "decision",
    title: stateLabel(to),
    detail: reason,
    state: to,
    isError: /failed|error/.test(to),
  }),
  [EVENT.ACTION_DONE]: ({ action, took_ms: took, result }) => ({
    lane: "step",
    title: action,
    detail: joined([tookText(took), resultText(result)]),
  }),
  [EVENT.ACTION_FAILED]: ({ action, took_ms: took, error }) => ({
    lane: "step",
    title: action,
    detail: joined([tookText(took), error]),
    isError: true,
  }),
  [EVENT.BMC_CALLS]: ({ calls, left_out: omitted = 0 }) => describeCalls(calls, omitted),
  [EVENT.WAITING]: ({ reason, until, next_action_at: next }) => ({
    lane: "decision",
    title: describeWait(reason)[0],
    detail: joined([
      next && `${nextAction(reason)} at ${clock(Date.parse(next))}`,
      until ? `timeout at ${clock(Date.parse(until))}` : "no timeout",
    ]),
  }),
  [EVENT.POWER]: ({ from, to, reason }) => ({
    lane: "decision",
    title: `power: ${from ?? "unknown"} → ${to ?? "unknown"}`,
    detail: reason,
  }),
  [EVENT.MAINTENANCE]: ({ on, reason, fault }, actor) => ({
    lane: actor.kind === "user" ? "api" : "decision",
    title: on ? "maintenance set" : "maintenance ended",
    detail: joined([reason, fault, byUser(actor)]),
    isError: !!fault,
  }),
  [EVENT.NOTE]: ({ text, by }, actor) => ({
    lane: actor.kind === "agent" ? "agent" : "decision",
    title: text,
    detail: by,
  }),
  [EVENT.NETWORK_ACTIVITY]: ({ by, text, times = 1 }) =>
    by === "console"
      ? describeOutput(text)
      : { lane: "network", title: `${by}: ${text}`, detail: times > 1 ? `${times} times` : "" },
  [EVENT.AGENT_CALL]: ({ call }) => ({ lane: "agent", title: call, detail: "from the agent" }),
};

/**
 * The text of a journal entry. An event of an unknown kind is shown as JSON.
 * @param {Described} entry
 * @returns {EntryText}
 */
export function describe({ actor, event }) {
  const description = DESCRIPTIONS[/** @type {EventKind} */ (event.kind)];
  if (description) return description(event, actor);
  const { kind, ...fields } = event;
  return { lane: "decision", title: kind, detail: JSON.stringify(fields) };
}

/** @param {JournalActor} actor */
const byUser = ({ kind, name }) => (kind === "user" && name ? `by ${name}` : "");

/** @param {(string | null | undefined)[]} parts */
const joined = (parts) => parts.filter(Boolean).join(" · ");

/** @param {number | undefined} ms */
const tookText = (ms) => (ms ? duration(ms) : "");

/** @param {unknown} result */
function resultText(result) {
  if (result === undefined || result === null) return "";
  if (Array.isArray(result)) return `${result.length} steps`;
  return typeof result === "string" ? result : JSON.stringify(result);
}

/**
 * Console output; its last line is the title.
 * @param {string} text
 * @returns {EntryText}
 */
function describeOutput(text) {
  const lines = text.split("\n");
  return {
    lane: "console",
    title: lines[lines.length - 1].trim(),
    detail: lines.length > 1 ? `${lines.length} lines` : "",
    lines,
  };
}

/** @param {RecordedCall} call */
const isAgentCall = (call) => call.request.startsWith("agent: ");
/** @param {RecordedCall} call */
const isFailedCall = (call) => !/^2\d\d|^ok/i.test(call.result);

/**
 * @param {RecordedCall[]} calls
 * @param {number} omitted
 * @returns {EntryText}
 */
function describeCalls(calls, omitted) {
  const totalMs = calls.reduce((sum, call) => sum + call.took_ms, 0);
  const failed = calls.find(isFailedCall);
  const number = calls.reduce((sum, call) => sum + (call.times ?? 1), 0) + omitted;
  return {
    lane: calls.every(isAgentCall) ? "agent" : "bmc",
    title: calls.length === 1 ? shortenCall(calls[0].request) : `${number} calls`,
    detail: joined([
      duration(totalMs),
      failed && `${shortenCall(failed.request)}: ${failed.result}`,
    ]),
    isError: !!failed,
    calls,
  };
}

/**
 * Removes the common prefixes of a call and replaces UUIDs by an ellipsis.
 * @param {string} request
 */
export const shortenCall = (request) =>
  request
    .replace("agent: ", "")
    .replace("/redfish/v1", "")
    .replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, "…");

/**
 * @typedef {object} TimelineItem
 * @property {string} lane
 * @property {string} title
 * @property {string} detail
 * @property {boolean} [isError]
 * @property {boolean} [isWait]
 * @property {number} start
 * @property {number} end
 * @property {number} seq
 *
 * @typedef {{ state: string, start: number, end: number }} StateSpan
 * @typedef {{ target: string, start: number, end: number | null, state?: string }} TimelineJob
 *
 * @typedef {object} TimelineLayout
 * @property {TimelineItem[]} items
 * @property {StateSpan[]} states
 * @property {TimelineJob[]} jobs
 * @property {number} from
 * @property {number} to
 */

/** Power requests are not jobs. */
const POWER_TARGET = /power|reboot/;
/** The span of an empty timeline. */
const EMPTY_SPAN_MS = 60_000;

/**
 * Arranges entries, sorted by time, for the chart. Waits, running steps and the last state extend to
 * `now`.
 * @param {JournalEntry[]} entries
 * @param {number} now
 * @returns {TimelineLayout}
 */
export function layoutTimeline(entries, now) {
  const builder = new TimelineBuilder(entries[0]?.timestamp ?? now - EMPTY_SPAN_MS, now);
  for (const entry of entries) builder.add(entry);
  const { items, states, jobs, from } = builder;
  return {
    items,
    states,
    jobs: jobs.filter(({ target }) => !POWER_TARGET.test(target)),
    from,
    to: now,
  };
}

/** The kinds of events that end a wait. */
const WAIT_ENDS = new Set([EVENT.STATE_CHANGED, EVENT.WAITING, EVENT.REQUESTED]);

class TimelineBuilder {
  /** @type {TimelineItem[]} */
  items = [];
  /** @type {StateSpan[]} */
  states = [];
  /** @type {TimelineJob[]} */
  jobs = [];
  /** @type {TimelineItem | null} */
  #wait = null;
  /**
   * The running steps, by name.
   * @type {Map<string, TimelineItem>}
   */
  #steps = new Map();

  /**
   * @param {number} from
   * @param {number} now
   */
  constructor(from, now) {
    this.from = from;
    this.now = now;
  }

  /** @param {JournalEntry} entry */
  add(entry) {
    const { event, timestamp, seq } = entry;
    if (this.#wait && WAIT_ENDS.has(/** @type {any} */ (event.kind))) {
      this.#wait.end = timestamp;
      this.#wait = null;
    }
    if (event.kind === EVENT.BMC_CALLS) {
      this.items.push(...callItems(entry));
      return;
    }
    const text = describe(entry);
    /** @type {TimelineItem} */
    const item = { ...text, start: timestamp - (event.took_ms ?? 0), end: timestamp, seq };
    if (event.kind === EVENT.STATE_CHANGED) this.#enterState(event, timestamp);
    if (event.kind === EVENT.REQUESTED)
      this.jobs.push({ target: event.target, start: timestamp, end: null });
    if (event.kind === EVENT.WAITING) {
      item.end = this.now;
      item.isWait = true;
      this.#wait = item;
    }
    const step = parseStep(event);
    if (step) this.#addStep(step, item);
    else this.items.push(item);
  }

  /**
   * @param {any} event
   * @param {number} timestamp
   */
  #enterState({ from, to }, timestamp) {
    const last = this.states.at(-1);
    if (last) last.end = timestamp;
    else this.states.push({ state: from, start: this.from, end: timestamp });
    this.states.push({ state: to, start: timestamp, end: this.now });
    const job = this.jobs.at(-1);
    if (job && job.end === null && isJobEnd(to)) {
      job.end = timestamp;
      job.state = to;
    }
  }

  /**
   * Adds a step as one span from its start to its end, however often it was polled.
   * @param {{ name: string, isPoll: boolean, isRunning: boolean }} step
   * @param {TimelineItem} item
   */
  #addStep({ name, isPoll, isRunning }, item) {
    const running = this.#steps.get(name);
    if (running && isPoll) {
      running.end = isRunning ? this.now : item.end;
      running.detail = item.detail || running.detail;
      running.isError ||= !!item.isError;
    } else {
      item.title = name;
      if (isRunning) item.end = this.now;
      this.items.push(item);
    }
    if (!isRunning) this.#steps.delete(name);
    else if (!running || !isPoll) this.#steps.set(name, item);
  }
}

/**
 * Parses the action of a step; null if the event is not about one.
 * @param {any} event
 */
function parseStep(event) {
  if (event.kind !== EVENT.ACTION_DONE && event.kind !== EVENT.ACTION_FAILED) return null;
  const found = /^(run|poll) \w+ step (.+)$/.exec(event.action);
  if (!found) return null;
  const isRunning =
    event.kind === EVENT.ACTION_DONE &&
    typeof event.result === "string" &&
    // Earlier versions stored other texts.
    /^running|goes on|at it/.test(event.result);
  return { name: found[2], isPoll: found[1] === "poll", isRunning };
}

/**
 * Calls are recorded together after the last of them, so they are placed one after another before it.
 * @param {JournalEntry} entry
 * @returns {TimelineItem[]}
 */
function callItems({ event, timestamp, seq }) {
  /** @type {RecordedCall[]} */
  const calls = event.calls;
  let end = timestamp;
  return [...calls].reverse().map((call) => {
    const start = end - call.took_ms;
    const times = call.times ?? 1;
    const item = {
      lane: isAgentCall(call) ? "agent" : "bmc",
      title: shortenCall(call.request),
      detail: joined([call.result, duration(call.took_ms), times > 1 ? `${times} times` : ""]),
      start,
      end,
      seq,
      isError: isFailedCall(call),
    };
    end = start;
    return item;
  });
}

/**
 * The first state of the running job and when it was entered, or null.
 * @param {JournalEntry[]} entries
 */
export function currentJobStart(entries) {
  const first = entries.findLast(
    ({ event }) =>
      event.kind === EVENT.STATE_CHANGED && isJobEnd(event.from) && !isJobEnd(event.to),
  );
  return first ? { state: first.event.to, timestamp: first.timestamp } : null;
}

/**
 * The current step of a busy node in words, or null.
 * @param {JournalEntry[]} entries
 * @param {NodeRecord} node
 */
export function currentStep(entries, node) {
  const step = [node.deploy_step, node.clean_step, node.service_step].find((one) => one?.step);
  if (step) return `Step ${step.interface}.${step.step}`;
  const last = entries.findLast(
    ({ event }) => event.kind === EVENT.ACTION_DONE || event.kind === EVENT.ACTION_FAILED,
  );
  return last ? `Last action: ${last.event.action}` : null;
}
