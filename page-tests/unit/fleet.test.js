// SPDX-License-Identifier: Apache-2.0
// Rows of the fleet: decoding, filters, groups, sorting, selection, layout and bulk actions.

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { actionById } from "../../crates/web-ui/page/app/actions.js";
import {
  actionStatus,
  checkWithoutServer,
} from "../../crates/web-ui/page/app/fleet/bulk_status.js";
import {
  countValues,
  dimension,
  groupRows,
  labelOf,
} from "../../crates/web-ui/page/app/fleet/dimensions.js";
import { filterRows, readFilters } from "../../crates/web-ui/page/app/fleet/filtering.js";
import {
  defaultCellSize,
  findCell,
  layoutGroups,
  neighbourCell,
  rowAt,
  uuidsInRectangle,
  visibleBlocks,
} from "../../crates/web-ui/page/app/fleet/layout.js";
import { compareNames, decodeRows, searchRows } from "../../crates/web-ui/page/app/fleet/rows.js";
import {
  clearSelection,
  moveCursor,
  retainRows,
  selectByClick,
  selection,
  setSelection,
  toggleRows,
} from "../../crates/web-ui/page/app/fleet/selection.js";
import { sortGroups } from "../../crates/web-ui/page/app/fleet/sorting.js";

const FIELDS = [
  "uuid",
  "name",
  "provision_state",
  "power_state",
  "owner",
  "rack",
  "wait_reason",
  "since",
];

/** Rows as the server sends them, with only some of the fields. */
const rowsOf = (...nodes) =>
  decodeRows({
    fields: FIELDS,
    nodes: nodes.map((node) => FIELDS.map((name) => node[name] ?? null)),
  });

const RACK = rowsOf(
  { uuid: "a", name: "r01-u01", provision_state: "active", power_state: "power on", rack: "r01" },
  {
    uuid: "b",
    name: "r01-u02",
    provision_state: "wait call-back",
    wait_reason: "agent heartbeat",
    owner: "research",
    rack: "r01",
  },
  { uuid: "c", name: "r02-u10", provision_state: "deploy failed", rack: "r02" },
  { uuid: "d", provision_state: "available", owner: "platform" },
);
const uuids = (rows) => rows.map(({ uuid }) => uuid).join("");
const noFilters = { text: "", selected: new Map() };

test("rows get labels, timestamps and the server's rack", () => {
  const [row] = rowsOf({ uuid: "x", provision_state: "active", since: "2026-01-01T00:00:00Z" });
  assert.equal(row.label, "x");
  assert.equal(row.since, Date.UTC(2026, 0, 1));
  const [named] = rowsOf({ uuid: "x", name: "r07-u01", provision_state: "active" });
  assert.equal(named.rack, null, "the client does not guess the rack");
});

test("names are compared by their numbers", () => {
  assert.deepEqual(["u10", "u2", "u1"].sort(compareNames), ["u1", "u2", "u10"]);
});

test("the search prefers names that begin with the text", () => {
  assert.equal(uuids(searchRows(RACK, "r0", 2)), "ab");
  assert.equal(uuids(searchRows(RACK, "failed", 9)), "c");
  assert.equal(uuids(searchRows(RACK, "waiting for agent", 9)), "b", "by the label of the state");
});

test("filters combine text, ranges and values", () => {
  const filter = (text, selected = []) =>
    uuids(filterRows(RACK, { text, selected: new Map(selected) }));
  assert.equal(filterRows(RACK, noFilters), RACK);
  assert.equal(filter("r01"), "ab");
  assert.equal(filter("r01 research"), "b");
  assert.equal(filter("r01-u[02-03]"), "b");
  assert.equal(filter("", [["state", new Set(["active", "available"])]]), "ad");
  assert.equal(filter("", [["rack", new Set(["-"])]]), "d", "rows without a rack");
  assert.equal(filter("", [["doing", new Set(["waiting"])]]), "b");
  const selected = new Map([["state", new Set(["active"])]]);
  assert.equal(uuids(filterRows(RACK, { text: "", selected }, "state")), "abcd");
});

test("filters are read from the address", () => {
  const query = new URLSearchParams({ q: "r01", state: "active,wait%20call-back", other: "x" });
  const filters = readFilters(query, decodeURIComponent);
  assert.equal(filters.text, "r01");
  assert.deepEqual([...filters.selected], [["state", new Set(["active", "wait call-back"])]]);
});

test("groups and counts are ordered, without a value last", () => {
  const groups = groupRows("rack", RACK);
  assert.deepEqual(
    groups.map(({ name, rows }) => [name, uuids(rows)]),
    [
      ["r01", "ab"],
      ["r02", "c"],
      ["no rack", "d"],
    ],
  );
  assert.deepEqual(
    groupRows("state", RACK).map(({ name }) => name),
    ["deploy failed", "waiting for agent", "active", "available"],
  );
  assert.deepEqual(groupRows("none", RACK), [{ value: "", name: "", rows: RACK }]);
  assert.deepEqual(countValues(dimension("owner"), RACK), [
    ["platform", 1],
    ["research", 1],
    ["-", 2],
  ]);
  assert.equal(labelOf(dimension("fault"), "power failure"), "BMC unreachable");
  assert.equal(labelOf(dimension("owner"), "-"), "no owner");
});

test("columns sort within groups", () => {
  const groups = [{ value: "", name: "", rows: RACK }];
  const sorted = (column, descending = false) =>
    uuids(sortGroups(groups, column, descending)[0].rows);
  assert.equal(sorted("name"), "abcd");
  assert.equal(sorted("name", true), "cbad");
  assert.equal(sorted("state"), "cbad");
  assert.equal(sorted("doing").at(0), "b");
  assert.equal(sorted("owner", true), "bdac");
  assert.equal(sortGroups(groups, "no such column", false), groups);
});

beforeEach(() => {
  clearSelection();
  selection.set({ ...selection.value, active: null });
});
const selected = () => [...selection.value.selected].join("");
const ORDER = ["a", "b", "c", "d"];

test("clicks toggle rows, and Shift selects ranges", () => {
  selectByClick("b", {}, ORDER);
  assert.equal(selected(), "b");
  selectByClick("d", { shiftKey: true }, ORDER);
  assert.equal(selected(), "bcd");
  selectByClick("a", { shiftKey: true }, ORDER);
  assert.equal(selected(), "ab", "the range starts at the anchor");
  selectByClick("a", {}, ORDER);
  assert.equal(selected(), "b");
  selectByClick("d", { shiftKey: true, ctrlKey: true }, ORDER);
  assert.equal([...selected()].sort().join(""), "abcd", "Ctrl keeps the earlier selection");
});

test("the cursor selects ranges with Shift", () => {
  moveCursor("b", false, ORDER);
  assert.equal(selected(), "");
  moveCursor("c", true, ORDER);
  moveCursor("d", true, ORDER);
  assert.equal(selected(), "bcd");
});

test("groups of rows are toggled, and removed rows are deselected", () => {
  toggleRows(["a", "b"]);
  assert.equal(selected(), "ab");
  toggleRows(["b", "c"]);
  assert.equal(selected(), "abc");
  toggleRows(["b", "c"]);
  assert.equal(selected(), "a");
  setSelection(["a", "d"]);
  retainRows(new Set(["d"]));
  assert.equal(selected(), "d");
});

const racks = (count, size) =>
  Array.from({ length: count }, (_, rack) => ({
    value: `r${rack}`,
    name: `r${rack}`,
    rows: rowsOf(
      ...Array.from({ length: size }, (_, unit) => ({
        uuid: `${rack}-${unit}`,
        provision_state: "active",
      })),
    ),
  }));

test("small groups are laid out side by side, and cells are found at their points", () => {
  const layout = layoutGroups(racks(6, 8), 1000, "m");
  assert.ok(layout.bands[0].blocks.length > 1);
  for (const { blocks } of layout.bands) {
    for (const { rows } of blocks) {
      for (const row of rows) {
        const { x, y } = findCell(layout, row.uuid);
        assert.equal(rowAt(layout, x + 1, y + 1), row);
      }
    }
  }
  assert.equal(rowAt(layout, -5, 40), null);
  assert.equal(findCell(layout, "unknown"), null);
});

test("the cursor moves between lines and bands", () => {
  const layout = layoutGroups(racks(6, 8), 1000, "m");
  const { columns } = layout;
  assert.equal(neighbourCell(layout, null, 1), "0-0");
  assert.equal(neighbourCell(layout, "0-0", 1), `0-${columns}`);
  assert.equal(neighbourCell(layout, "0-0", -1), "0-0", "there is nothing above");
  const below = layout.bands[1].blocks[0].rows[0].uuid;
  assert.equal(neighbourCell(layout, `0-${columns * Math.floor(7 / columns)}`, 1), below);
});

test("only visible blocks are drawn, and a rectangle selects its cells", () => {
  const layout = layoutGroups(racks(200, 40), 1000, "s");
  const visible = visibleBlocks(layout, 0, 400);
  assert.ok(visible.length > 0 && visible.length < 200);
  const [first] = visible;
  const cells = uuidsInRectangle(
    layout,
    first.left,
    first.rowsTop,
    first.left + 20,
    first.rowsTop + 5,
  );
  assert.deepEqual(cells, ["0-0", "0-1"]);
  assert.equal(defaultCellSize(12), "l");
  assert.equal(defaultCellSize(500), "m");
  assert.equal(defaultCellSize(10_000), "s");
});

test("power and maintenance actions skip machines that are as requested", () => {
  const { possible, rejected } = checkWithoutServer(actionById("power-on"), RACK);
  assert.equal(uuids(possible), "bcd");
  assert.deepEqual(
    rejected.map(({ reason, rows }) => [reason, uuids(rows)]),
    [["already on", "a"]],
  );
  assert.equal(uuids(checkWithoutServer(actionById("reboot"), RACK).possible), "abcd");
});

test("the status of a bulk action follows the row", () => {
  const status = (action, row, result, asOf = 100) =>
    actionStatus(actionById(action), row, result, asOf).status;
  const [active, waiting, failed, available] = RACK;
  const accepted = { at: 50 };
  assert.equal(status("manage", active, undefined), "queued");
  assert.equal(status("manage", active, { error: new Error("locked") }), "failed");
  assert.equal(status("manage", failed, accepted, 10), "running", "the row is older");
  assert.equal(status("deploy", waiting, accepted), "running");
  assert.equal(status("deploy", failed, accepted), "failed");
  assert.equal(status("provide", available, accepted), "done");
  assert.equal(status("power-on", active, accepted), "done");
  assert.equal(status("power-off", active, accepted), "failed");
  const changing = { ...active, target_power_state: "power off" };
  assert.equal(status("power-off", changing, accepted), "running");
  assert.equal(status("maintenance-on", active, accepted), "done");
});
