// SPDX-License-Identifier: Apache-2.0
// Types of the API's JSON as the web UI uses it, and of values that several modules share. They are
// global, so that no module has to import them; nothing here is shipped.

type Generated = typeof import("../page/app/generated.js");
type ProvisionState = keyof Generated["PROVISION_STATES"];
type StateFamily = Generated["PROVISION_STATES"][ProvisionState]["family"];
type StateClass = Generated["PROVISION_STATES"][ProvisionState]["class"];
type Verb = Generated["VERBS"][number];
type WaitReason = keyof Generated["WAIT_REASONS"];
type Fault = Generated["FAULTS"][number];
type EventKind = keyof Generated["EVENT_KINDS"];

/** A row of `/v1/ferrite/fleet`, with times as milliseconds and the values derived in `decodeRows`. */
interface FleetRow {
  uuid: string;
  name: string | null;
  /** A `ProvisionState`, or one of a newer server. */
  provision_state: string;
  target_provision_state: string | null;
  power_state: string | null;
  target_power_state: string | null;
  maintenance: boolean;
  fault: string | null;
  owner: string | null;
  resource_class: string | null;
  conductor_group: string;
  driver: string;
  rack: string | null;
  /** The wait reason. */
  wait_reason: string | null;
  /** When the wait fails. */
  wait_until: number | null;
  /** When the next poll, retry or boot starts. */
  next_action_at: number | null;
  error: string | null;
  /** When the provision state last changed. */
  since: number | null;
  /** The name, or the UUID of a node without one. */
  label: string;
  /** Lower-case text that the search field is matched against. */
  searchText: string;
}

/** The response of `/v1/ferrite/fleet`: rows of values under one list of names. */
interface FleetResponse {
  seq: number;
  complete: boolean;
  fields: string[];
  nodes: unknown[][];
  deleted?: string[];
  verbs?: Record<string, string[]>;
}

/** What the fleet model publishes. */
interface FleetState {
  rows: FleetRow[];
  byId: Map<string, FleetRow>;
  /** The verbs that each provision state allows. */
  verbs: Record<string, string[]>;
  ready: boolean;
  /** When the state or power of a row last changed, by UUID, as `performance.now()`. */
  changed: Map<string, number>;
  /** `performance.now()` before the request whose response the rows are. */
  asOf: number;
}

/** Rows that share a value of a dimension. */
interface RowGroup {
  value: string;
  name: string;
  rows: FleetRow[];
}

/** What machines are grouped and filtered by. */
interface Dimension {
  id: string;
  label: string;
  /** Returns a row's value. */
  valueOf: (row: FleetRow) => string;
  /** Compares values; by name if absent. */
  order?: (a: string, b: string) => number;
  /** The label of rows without a value. */
  none?: string;
  /** Values are provision states and get their mark. */
  isState?: boolean;
  /** The label of a value, if it is not the value itself. */
  labelOf?: (value: string) => string;
}

interface Filters {
  text: string;
  /** Selected values by dimension. */
  selected: Map<string, Set<string>>;
}

/** A node as `/v1/nodes/{id}` returns it. */
interface NodeRecord {
  uuid: string;
  name: string | null;
  /** The projects that own and lease the machine. */
  owner?: string | null;
  lessee?: string | null;
  provision_state: string;
  target_provision_state: string | null;
  power_state: string | null;
  target_power_state: string | null;
  maintenance: boolean;
  maintenance_reason: string | null;
  fault: string | null;
  last_error: string | null;
  instance_info: Record<string, any>;
  properties: Record<string, any>;
  driver_info: Record<string, any>;
  traits: string[];
  [field: string]: any;
}

/** An entry of the journal. `timestamp` is `at` in milliseconds. */
interface JournalEntry {
  seq: number;
  at: string;
  node_uuid: string;
  node_name?: string | null;
  actor: JournalActor;
  event: { kind: string; [field: string]: any };
  timestamp: number;
}

interface JournalActor {
  kind: string;
  name?: string | null;
  request_id?: string;
  hostname?: string;
  address?: string;
}

/** One request to a BMC or an agent, as recorded in a `bmc_calls` entry. */
interface RecordedCall {
  request: string;
  result: string;
  took_ms: number;
  times?: number;
}

/** A journal entry in words. */
interface EntryText {
  lane: string;
  title: string;
  detail: string;
  isError?: boolean;
  /** The provision state that was entered. */
  state?: string;
  calls?: RecordedCall[];
  lines?: string[];
}

/** A job that `/v1/ferrite/durations` has measured. */
interface JobDuration {
  starts_in: string;
  count: number;
  median_ms: number;
  p90_ms: number;
}

/** Something a user can request for a node: a provision verb, power, maintenance. */
interface ActionDefinition {
  id: string;
  /** The verb that `explain` is called with; power and maintenance have none. */
  verb?: Verb;
  label: string;
  /** The headline of the confirmation, if it differs from the label. */
  title?: string;
  description: string;
  /** Data on the machine is lost. */
  erasesData?: boolean;
  /** Interrupts the machine. */
  isDisruptive?: boolean;
  isPower?: boolean;
  form?: "deploy" | "rescue" | "maintenance";
  send: (node: string, body?: object) => Promise<unknown>;
}

/** What a user entered for an action: a request body, and fields of `instance_info` to set before. */
interface ActionInput {
  body?: Record<string, any>;
  instance_info?: Record<string, string> | null;
}

/** The response of `explain` for one node. */
interface Explanation {
  possible: boolean;
  obstacles: string[];
  plan: string[];
  ends_in?: string;
  /** What the node waits for now. */
  waiting?: { reason: string; queue?: JobQueuePosition } | null;
}

/** The position of a job in its queue. */
interface JobQueuePosition {
  /** The name of the queue. */
  name: string;
  position: number;
  /** The number of jobs in the queue. */
  length: number;
}

/** The model of the machine page, and its value once the node is loaded. */
type MachineModel = import("../page/app/machine/model.js").Machine;
type MachineView = import("../page/app/machine/model.js").MachineState & { node: NodeRecord };
