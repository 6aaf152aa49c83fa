// SPDX-License-Identifier: Apache-2.0
// Node patches, BIOS settings, RAID volumes and automation resources.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  RESOURCE_KINDS,
  editableFieldsOf,
  patchOperations,
} from "../../crates/web-ui/page/app/automation/resource_kinds.js";
import { changeOf, memberChanges } from "../../crates/web-ui/page/app/machine/node_patch.js";
import { settingProblem } from "../../crates/web-ui/page/app/machine/setup/bios_setting.js";
import {
  NEW_VOLUME,
  fromLogicalDisk,
  toLogicalDisk,
} from "../../crates/web-ui/page/app/machine/setup/raid_volumes.js";

test("empty fields are removed", () => {
  assert.deepEqual(changeOf("/owner", ""), { op: "remove", path: "/owner" });
  assert.deepEqual(changeOf("/owner", "me"), { op: "add", path: "/owner", value: "me" });
  assert.deepEqual(changeOf("/retired", false), { op: "add", path: "/retired", value: false });
});

test("unchanged members and masked secrets are not sent", () => {
  const before = { password: "******", old: 1, "a/b~c": 1, list: [1, 2] };
  const after = { password: "******", "a/b~c": 2, list: [1, 2], more: { x: 1 } };
  assert.deepEqual(memberChanges("/driver_info", before, after), [
    { op: "remove", path: "/driver_info/old" },
    { op: "add", path: "/driver_info/a~1b~0c", value: 2 },
    { op: "add", path: "/driver_info/more", value: { x: 1 } },
  ]);
});

test("BIOS values are checked against their constraints", () => {
  const integer = { name: "Delay", attribute_type: "Integer", lower_bound: 60, upper_bound: 600 };
  assert.equal(settingProblem(integer, "90"), null);
  assert.match(settingProblem(integer, "9999"), /between 60 and 600/);
  assert.match(settingProblem(integer, "x"), /integer/);
  const text = { name: "Tag", attribute_type: "String", min_length: 2, max_length: 4 };
  assert.equal(settingProblem(text, "abc"), null);
  assert.match(settingProblem(text, "a"), /2 to 4 characters/);
  assert.equal(settingProblem({ name: "Any", attribute_type: "Enumeration" }, "x"), null);
});

test("RAID volumes are converted to and from logical disks", () => {
  assert.deepEqual(toLogicalDisk(NEW_VOLUME), {
    size_gb: "MAX",
    raid_level: "1",
    is_root_volume: true,
  });
  const disk = {
    size_gb: 100,
    raid_level: "5",
    controller: "c0",
    number_of_physical_disks: 3,
  };
  assert.deepEqual(toLogicalDisk(fromLogicalDisk(disk)), disk);
});

test("patches add, replace and remove fields", () => {
  assert.deepEqual(patchOperations({ a: 1, b: null, c: 3 }, { a: 2, b: 1 }), [
    { op: "replace", path: "/a", value: 2 },
    { op: "add", path: "/b", value: 1 },
    { op: "remove", path: "/c" },
  ]);
});

test("examples of automation resources have only editable fields", () => {
  for (const kind of RESOURCE_KINDS) {
    assert.deepEqual(editableFieldsOf(kind, kind.example), kind.example, kind.id);
    assert.deepEqual(editableFieldsOf(kind, { uuid: "x", description: null }), {}, kind.id);
  }
});
