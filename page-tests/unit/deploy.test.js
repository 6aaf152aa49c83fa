// SPDX-License-Identifier: Apache-2.0
// Deployments: config drives, images, the status of machines, and stored runs.

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import {
  buildConfigDrive,
  validateIdentity,
} from "../../crates/web-ui/page/app/deploy/config_drive.js";
import { imageFields, imageProblem } from "../../crates/web-ui/page/app/deploy/image.js";
import { candidateRows } from "../../crates/web-ui/page/app/deploy/machines.js";
import { restoreOperations } from "../../crates/web-ui/page/app/deploy/request_deploy.js";
import { deployStatus } from "../../crates/web-ui/page/app/deploy/run_status.js";
import {
  isStoredInTab,
  readRejected,
  readRun,
  storeRun,
} from "../../crates/web-ui/page/app/deploy/run_storage.js";

const KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHbLfA0Vn8 me@laptop";
const EMPTY = { hostname: "", keys: "", userData: "", networkData: "" };

test("config drives contain what was entered", () => {
  assert.equal(buildConfigDrive(null, "r01"), null, "the server builds none");
  assert.equal(buildConfigDrive(EMPTY, "r01"), null);
  const drive = buildConfigDrive(
    {
      hostname: "{name}.example",
      keys: `${KEY}\n\n${KEY.replace(" me@laptop", "")}`,
      userData: "#!/bin/sh",
      networkData: '{"links": []}',
    },
    "r01",
  );
  assert.deepEqual(drive.meta_data.hostname, "r01.example");
  assert.deepEqual(Object.keys(drive.meta_data.public_keys), ["me@laptop", "key-2"]);
  assert.equal(drive.user_data, "#!/bin/sh");
  assert.deepEqual(drive.network_data, { links: [] });
});

test("invalid identities are rejected by field", () => {
  assert.deepEqual(validateIdentity({ ...EMPTY, hostname: "{name}", keys: KEY }), {});
  assert.match(validateIdentity({ ...EMPTY, hostname: "a b" }).hostname, /letters/);
  assert.match(validateIdentity({ ...EMPTY, keys: "nonsense" }).keys, /Not a public key/);
  assert.match(validateIdentity({ ...EMPTY, keys: "-----BEGIN PRIVATE KEY" }).keys, /private key/);
  assert.match(validateIdentity({ ...EMPTY, networkData: "[]" }).networkData, /object/);
  assert.ok(validateIdentity({ ...EMPTY, networkData: "{" }).networkData);
});

test("images need a URL, and web images a checksum", () => {
  const image = (source, checksum = "", keep = false) => ({ source, checksum, keep });
  assert.equal(imageProblem(image("", "", true)), null);
  assert.ok(imageProblem(image("")));
  assert.ok(imageProblem(image("ftp://x/y")));
  assert.ok(imageProblem(image("https://x/y")));
  assert.equal(imageProblem(image("https://x/y", "abc")), null);
  assert.equal(imageProblem(image("file:///x")), null);
  assert.equal(imageFields(image("x", "", true)), null);
  assert.deepEqual(imageFields(image("x")), { image_source: "x" });
  assert.deepEqual(imageFields(image("x", "y")), { image_source: "x", image_checksum: "y" });
});

test("candidates are named, or available machines of the class", () => {
  const row = (uuid, state, resourceClass, maintenance = false) => ({
    uuid,
    provision_state: state,
    resource_class: resourceClass,
    maintenance,
  });
  const rows = [
    row("a", "available", "large"),
    row("b", "active", "large"),
    row("c", "available", "large", true),
    row("d", "available", "small"),
  ];
  const byId = new Map(rows.map((one) => [one.uuid, one]));
  const candidates = (selection) => candidateRows(selection, rows, byId).map(({ uuid }) => uuid);
  assert.deepEqual(candidates({ mode: "names", nodes: new Set(["b", "gone"]) }), ["b"]);
  assert.deepEqual(candidates({ mode: "class", resourceClass: "large" }), ["a"]);
});

test("a rejected deployment restores instance_info, except masked secrets", () => {
  const before = { image_source: "old", token: "******" };
  assert.deepEqual(restoreOperations(before, ["image_source", "image_checksum", "token"]), [
    { op: "add", path: "/instance_info/image_source", value: "old" },
    { op: "remove", path: "/instance_info/image_checksum" },
  ]);
});

test("the status of a machine in a deployment", () => {
  const status = (row, now = 10_000, isLoaded = true) => deployStatus(row, 1000, now, isLoaded);
  const row = (state, since = 2000, error = null) => ({ provision_state: state, since, error });
  assert.equal(status(undefined).status, "failed", "the machine was removed");
  assert.equal(status(undefined, 10_000, false).status, "running", "the fleet is not loaded");
  assert.deepEqual(status(row("active")), { status: "done", tookMs: 1000 });
  assert.deepEqual(status(row("active", 500)), { status: "done", tookMs: null });
  assert.equal(status(row("deploying")).status, "running");
  assert.equal(status(row("deploy failed")).status, "failed");
  assert.equal(status(row("deploy failed", 500), 2000).status, "running", "the row is older");
  assert.equal(status(row("available", 500, "no image"), 2000).status, "running");
  assert.equal(status(row("available", 500, "no image")).status, "failed");
});

beforeEach(() => {
  const values = new Map();
  globalThis.sessionStorage = {
    getItem: (key) => values.get(key) ?? null,
    setItem: (key, value) => values.set(key, value),
  };
});

test("short runs are in the address, long ones in the tab", () => {
  const rejected = [{ label: "r01", why: "locked" }];
  const short = new URLSearchParams(storeRun(["a", "b"], rejected));
  assert.deepEqual(readRun(short), ["a", "b"]);
  assert.deepEqual(readRejected(short), rejected);
  const uuids = Array.from({ length: 101 }, (_, index) => `u${index}`);
  const long = new URLSearchParams(storeRun(uuids, []));
  assert.ok(isStoredInTab(long));
  assert.deepEqual(readRun(long), uuids);
  assert.equal(readRun(new URLSearchParams({ run: "in-this-tab", at: "0" })), null);
});

test("without storage the address is long", () => {
  globalThis.sessionStorage.setItem = () => {
    throw new Error("denied");
  };
  const uuids = Array.from({ length: 101 }, (_, index) => `u${index}`);
  assert.deepEqual(readRun(new URLSearchParams(storeRun(uuids, []))), uuids);
});
