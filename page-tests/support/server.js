// SPDX-License-Identifier: Apache-2.0
// Starts the real binary as a server, and simulated machines for it. Both stop with the test.

import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";

const BINARY =
  process.env.FERRITE_TEST_BINARY ??
  new URL("../../target/debug/ferrite", import.meta.url).pathname;
/**
 * How long a test waits for a condition. Far more than necessary, because the machine that runs the
 * tests may be busy with builds; a condition that is met ends the wait at once.
 */
export const DEADLINE_MS = Number(process.env.FERRITE_TEST_DEADLINE_MS ?? 300_000);
const POLL_MS = 50;
const STOP_TIMEOUT_MS = 10_000;
/** The deployed image and its SHA-256. */
const IMAGE = "abc";
const IMAGE_SHA256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/** Starts a server on a free port; `boots` enables its boot services, `config` is appended. */
export async function startServer({ auth = "none", boots = false, config: extra = "" } = {}) {
  const home = await mkdtemp(path.join(tmpdir(), "ferrite-page-"));
  const config = path.join(home, "ferrite.toml");
  const image = await serveImage();
  // Simulated machines do not load the ramdisk, but the configuration requires its URLs.
  const bootConfig = boots
    ? `[boot]\nlisten = ["127.0.0.1:0"]\ndeploy_kernel = "${image.url}"\ndeploy_ramdisk = "${image.url}"\n`
    : "[boot]\nenabled = false\n";
  await writeFile(config, bootConfig + extra);
  const children = [];
  const server = start([
    "serve",
    ...["--auth", auth],
    ...["--config", config],
    ...["--listen", "127.0.0.1:0"],
    ...["--data-dir", home],
  ]);
  children.push(server);
  const url = await outputMatching(server, /listening on (http:\/\/[0-9.:]+)/);
  const password =
    auth !== "none" ? (await readFile(path.join(home, "admin-password"), "utf8")).trim() : null;
  const request = apiClient(url, password);
  return {
    url,
    request,
    password,
    home,
    image,
    /** Enrols simulated machines in racks of eight, ready to be managed and deployed. */
    async simulate(count, { speed = 50, options = [] } = {}) {
      const target = password ? url.replace("://", `://admin:${password}@`) : url;
      const fleet = start([
        "sim",
        ...["--bmcs", String(count)],
        ...["--port", "0"],
        ...["--speed", String(speed)],
        ...["--personality", "generic"],
        ...["--enrol", target],
        ...["--agents", url],
        "--agents-tls",
        ...options,
      ]);
      children.push(fleet);
      await outputMatching(fleet, /(\d+) nodes created/);
      await configureNodes(request, image.url);
      return fleet;
    },
    async stop() {
      image.close();
      for (const child of children.reverse()) await stopProcess(child);
      await rm(home, { recursive: true, force: true });
    },
  };
}

/** Returns a function that sends a request to the API and returns the JSON of the response. */
function apiClient(url, password) {
  const headers = {
    "X-OpenStack-Ironic-API-Version": "latest",
    "Content-Type": "application/json",
  };
  if (password) headers.Authorization = `Basic ${btoa(`admin:${password}`)}`;
  return async (method, where, body) => {
    const response = await fetch(url + where, {
      method,
      headers,
      body: body && JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${where}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  };
}

/** Polls until `condition` returns something truthy, and returns that; fails after the deadline. */
export async function waitFor(description, condition, timeoutMs = DEADLINE_MS) {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const result = await condition();
    if (result) return result;
    if (Date.now() > deadline) throw new Error(`timeout: ${description}`);
    await sleep(POLL_MS);
  }
}

/** Requests the verbs for all nodes one after another, and waits for the state that each leads to. */
export async function provisionAll(request, ...transitions) {
  for (const [verb, state] of transitions) {
    const { nodes } = await request("GET", "/v1/nodes");
    await Promise.all(
      nodes.map(({ uuid }) =>
        request("PUT", `/v1/nodes/${uuid}/states/provision`, { target: verb }),
      ),
    );
    await waitFor(`all nodes are ${state}`, () => areAll(request, state));
  }
}

async function areAll(request, state) {
  const { nodes } = await request(
    "GET",
    "/v1/nodes?fields=provision_state,target_provision_state,last_error",
  );
  const failed = nodes.find((node) => /failed|error/.test(node.provision_state));
  if (failed) throw new Error(`${failed.provision_state}: ${failed.last_error}`);
  return nodes.every((node) => node.provision_state === state && !node.target_provision_state);
}

/** Sets names, racks, owners and the fields that a deployment needs. */
async function configureNodes(request, image) {
  const { nodes } = await request("GET", "/v1/nodes");
  nodes.sort((a, b) => a.name.localeCompare(b.name));
  for (const [index, { uuid }] of nodes.entries()) {
    const rackIndex = Math.floor(index / 8);
    const rack = `r${String(rackIndex + 1).padStart(2, "0")}`;
    const fields = {
      name: `${rack}-u${String((index % 8) + 1).padStart(2, "0")}`,
      owner: ["platform", "research"][rackIndex % 2],
      boot_interface: "pxe",
      inspect_interface: "agent",
      automated_clean: true,
      extra: { rack },
      instance_info: { image_source: image, image_checksum: IMAGE_SHA256 },
    };
    const changes = Object.entries(fields).map(([name, value]) => ({
      op: "add",
      path: `/${name}`,
      value,
    }));
    await request("PATCH", `/v1/nodes/${uuid}`, changes);
  }
}

function serveImage() {
  return new Promise((resolve) => {
    const server = http.createServer((request, response) => {
      response.writeHead(200, { "Content-Length": IMAGE.length });
      response.end(request.method === "GET" ? IMAGE : "");
    });
    server.listen(0, "127.0.0.1", () =>
      resolve({
        url: `http://127.0.0.1:${server.address().port}/image.raw`,
        digest: IMAGE_SHA256,
        close: () => server.close(),
      }),
    );
  });
}

/** The environment without `FERRITE_` variables, which the server would take for its configuration. */
const ENVIRONMENT = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => !name.startsWith("FERRITE_")),
);
// Simulated machines get no addresses from DHCP, so their agents have no boot proof.
ENVIRONMENT.FERRITE_CONDUCTOR__AGENT_BOOT_PROOF = "none";
// The file server of the tests has a loopback address.
ENVIRONMENT.FERRITE_IMAGES__ALLOW_LOCAL_URLS = "true";

function start(args) {
  const child = spawn(BINARY, args, { stdio: ["ignore", "pipe", "pipe"], env: ENVIRONMENT });
  child.output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (bytes) => {
      child.output += bytes;
    });
  child.on("error", (error) => {
    child.output += String(error);
  });
  return child;
}

async function outputMatching(child, pattern) {
  const found = await waitFor(`output matches ${pattern}`, () => {
    if (child.exitCode !== null) throw new Error(`the process ended: ${child.output}`);
    return pattern.exec(child.output);
  });
  return found[1];
}

/** Stops a process; kills it if it does not stop in time. */
export async function stopProcess(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = new Promise((resolve) => {
    child.once("exit", resolve);
  });
  child.kill("SIGTERM");
  const timer = setTimeout(() => child.kill("SIGKILL"), STOP_TIMEOUT_MS);
  await exited;
  clearTimeout(timer);
}

const sleep = (ms) =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
