// SPDX-License-Identifier: Apache-2.0
// The journal's entries as things to draw: marks and spans in lanes, the states as a band, the jobs.

import { clock, duration } from "../../times.js";

/** The lanes from top to bottom; those that are empty are left out of the picture. */
export const LANES = [
  { id: "api", label: "API", colour: "--lane-api" },
  { id: "decision", label: "Decisions", colour: "--lane-decision" },
  { id: "step", label: "Steps", colour: "--state-deploy" },
  { id: "bmc", label: "BMC calls", colour: "--lane-bmc" },
  { id: "network", label: "DHCP, TFTP, HTTP", colour: "--lane-network" },
  { id: "agent", label: "Agent", colour: "--lane-agent" },
  { id: "console", label: "Console", colour: "--lane-console" },
];

export const laneLabel = (id) => LANES.find((lane) => lane.id === id)?.label ?? id;

/** One line of the list for an entry: `{lane, title, detail, bad}`. */
export function describe({ who, what }) {
  const by = who.kind === "user" ? `by ${who.name ?? "somebody"}` : "";
  switch (what.kind) {
    case "enrolled": return { lane: "api", title: "enrolled", detail: by };
    case "removed": return { lane: "api", title: "removed", detail: by };
    case "changed": return { lane: who.kind === "user" ? "api" : "decision", title: `changed ${what.fields.join(", ")}`,
      detail: by };
    case "asked": return { lane: "api", title: `asked for ${what.target}`, detail: by };
    case "entered": return { lane: "decision", title: what.to, detail: what.why, state: what.to,
      bad: /failed|error/.test(what.to) };
    case "did": return { lane: "step", title: what.action, detail: [took(what), result(what.result)].filter(Boolean).join(" · ") };
    case "failed": return { lane: "step", title: what.action, detail: `${took(what)} · ${what.error}`, bad: true };
    case "bmc_calls": return calls(what);
    case "waiting": return { lane: "decision", title: `waits for ${what.why}`,
      detail: what.until ? `until ${clock(Date.parse(what.until))}` : "until something happens" };
    case "power": return { lane: "decision", title: `power: ${what.from ?? "unknown"} → ${what.to ?? "unknown"}`,
      detail: what.why };
    case "maintenance": return { lane: who.kind === "user" ? "api" : "decision",
      title: what.on ? "maintenance set" : "maintenance ended", detail: [what.reason, what.fault, by].filter(Boolean).join(" · "),
      bad: !!what.fault };
    case "noted": return { lane: who.kind === "agent" ? "agent" : "decision", title: what.text, detail: what.by };
    case "seen": return what.by === "console" ? printed(what) : { lane: "network", title: `${what.by}: ${what.text}`,
      detail: what.times > 1 ? `${what.times} times` : "" };
    case "heard": return { lane: "agent", title: what.what, detail: "from the agent" };
    default: return { lane: "decision", title: what.kind, detail: JSON.stringify(what) };
  }
}

const took = ({ took_ms: ms }) => (ms ? duration(ms) : "");
const isAgents = (call) => call.what.startsWith("agent: ");

/** What a console printed: its last line stands for all. */
function printed({ text }) {
  const lines = text.split("\n");
  return { lane: "console", title: lines.at(-1).trim(), detail: lines.length > 1 ? `${lines.length} lines` : "", lines };
}

function result(value) {
  if (value === undefined || value === null) return "";
  if (Array.isArray(value)) return `${value.length} steps`;
  return typeof value === "string" ? value : JSON.stringify(value);
}

function calls({ calls: list, left_out: more = 0 }) {
  const total = list.reduce((sum, call) => sum + call.took_ms, 0);
  const bad = list.find((call) => !/^2\d\d|^ok/i.test(call.result));
  const count = list.reduce((sum, call) => sum + (call.times ?? 1), 0) + more;
  return {
    lane: list.every(isAgents) ? "agent" : "bmc",
    title: list.length === 1 ? short(list[0].what) : `${count} calls`,
    detail: `${duration(total)}${bad ? ` · ${short(bad.what)}: ${bad.result}` : ""}`, bad: !!bad, calls: list,
  };
}

/** Long ids in Redfish paths say nothing to a reader. */
export const short = (what) => what.replace("agent: ", "").replace("/redfish/v1", "").replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, "…");

/** Everything there is to draw: `{items, states, jobs, from, to}`. */
export function arrange(entries, now) {
  const items = [], states = [], jobs = [];
  const open = new Map();
  let waiting = null;
  for (const entry of entries) {
    const told = describe(entry);
    const { what, moment } = entry;
    if (waiting && (what.kind === "entered" || what.kind === "waiting" || what.kind === "asked")) { waiting.end = moment; waiting = null; }
    if (what.kind === "bmc_calls") { items.push(...callItems(entry, told)); continue; }
    const item = { ...told, start: moment - (what.took_ms ?? 0), end: moment, seq: entry.seq };
    if (what.kind === "entered") {
      if (states.length) states.at(-1).end = moment;
      else states.push({ state: what.from, start: entries[0].moment, end: moment });
      states.push({ state: what.to, start: moment, end: now });
      follow(jobs, entry);
    }
    if (what.kind === "asked") jobs.push({ target: what.target, start: moment, end: null });
    if (what.kind === "waiting") { waiting = item; item.end = now; item.isWait = true; }
    const step = stepOf(what);
    if (!step) { items.push(item); continue; }
    // A step is one span from when it was begun until it was over, however often it was looked at.
    const before = open.get(step.name);
    if (before && step.isLook) {
      before.end = moment;
      before.detail = item.detail || before.detail;
      before.bad ||= !!item.bad;
    } else {
      items.push(item);
      item.title = step.name;
    }
    if (step.goesOn) { if (!before) open.set(step.name, item); item.end = before ? item.end : now; } else open.delete(step.name);
  }
  return { items, states, jobs: jobs.filter((job) => !POWER.test(job.target)), from: entries[0]?.moment ?? now - 60000, to: now };
}

const POWER = /power|reboot/;

/** A job ends when the machine rests again. */
function follow(jobs, { what, moment }) {
  const job = jobs.at(-1);
  if (job && job.end === null && RESTS.test(what.to)) {
    job.end = moment;
    job.state = what.to;
  }
}

function stepOf(what) {
  if (what.kind !== "did" && what.kind !== "failed") return null;
  const found = /^(run|poll) (\w+ step .+)$/.exec(what.action);
  if (!found) return null;
  const goesOn = what.kind === "did" && typeof what.result === "string" && /goes on|at it/.test(what.result);
  return { name: found[2].replace(/^\w+ step /, ""), isLook: found[1] === "poll", goesOn };
}

/** Calls are told together, after the last of them: they are laid one after the other before that. */
function callItems(entry, told) {
  let end = entry.moment;
  return [...entry.what.calls].reverse().map((call) => {
    const item = {
      lane: isAgents(call) ? "agent" : "bmc", title: short(call.what),
        detail: `${call.result} · ${duration(call.took_ms)}${call.times > 1 ? ` · ${call.times} times` : ""}`,
      start: end - call.took_ms, end, seq: entry.seq, bad: told.bad && !/^2\d\d|^ok/i.test(call.result),
    };
    end -= call.took_ms;
    return item;
  });
}

const RESTS = /^(enroll|manageable|available|active|rescue|error)$|failed$/;

/** With which state and when the job began that goes on: `{state, moment}`, or null. */
export function jobBegan(entries) {
  const first = entries.findLast(({ what }) => what.kind === "entered" && RESTS.test(what.from) && !RESTS.test(what.to));
  return first ? { state: first.what.to, moment: first.moment } : null;
}

/** What a busy machine is at, in words, or null. */
export function currentStep(entries, node) {
  const step = [node.deploy_step, node.clean_step, node.service_step].find((one) => one?.step);
  if (step) return `Step ${step.interface}.${step.step}`;
  const last = entries.findLast((entry) => entry.what.kind === "did" || entry.what.kind === "failed");
  return last ? `Last: ${last.what.action}` : null;
}
