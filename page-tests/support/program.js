// SPDX-License-Identifier: Apache-2.0
// Starts the real program: a server, and simulated machines for it. Both end with the test.

import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";

const BINARY = process.env.FERRITE_BINARY ?? new URL("../../target/debug/ferrite", import.meta.url).pathname;
const PATIENCE_MS = 60_000;
/** What is deployed, and its SHA-256. */
const IMAGE = "abc";
const DIGEST = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/** A server on a free port: `{url, ask, password, stop, simulate}`; with `boots` it has boot services. */
export async function serve({ auth = "none", boots = false } = {}) {
  const home = await mkdtemp(path.join(tmpdir(), "ferrite-page-"));
  const config = path.join(home, "ferrite.toml");
  const image = await serveImage();
  // Simulated machines load nothing, but where it would be has to be said.
  await writeFile(config, boots ? `[boot]\nlisten = ["127.0.0.1:0"]\ndeploy_kernel = "${image.url}"\ndeploy_ramdisk = "${image.url}"\n`
    : "[boot]\nenabled = false\n");
  const children = [];
  const server = start(["serve", "--auth", auth, "--config", config, "--listen", "127.0.0.1:0", "--data-dir", home]);
  children.push(server);
  const url = await said(server, /listening on (http:\/\/[0-9.:]+)/);
  const password = auth === "basic" ? (await readFile(path.join(home, "admin-password"), "utf8")).trim() : null;
  const headers = { "X-OpenStack-Ironic-API-Version": "latest", "Content-Type": "application/json" };
  if (password) headers.Authorization = `Basic ${btoa(`admin:${password}`)}`;
  const ask = async (method, where, body) => {
    const answer = await fetch(url + where, { method, headers, body: body && JSON.stringify(body) });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${where}: ${answer.status} ${text}`);
    return text ? JSON.parse(text) : null;
  };
  return {
    url, ask, password, home, image,
    /** Machines that are enrolled, one rack of each eight, ready to be deployed. */
    async simulate(count, { speed = 50, more = [] } = {}) {
      const target = password ? url.replace("://", `://admin:${password}@`) : url;
      const fleet = start(["sim", "--bmcs", String(count), "--port", "0", "--speed", String(speed), "--personality", "generic",
        "--enrol", target, "--agents", url, "--agents-tls", ...more]);
      children.push(fleet);
      await said(fleet, /(\d+) nodes created/);
      await dress(ask, image.url);
    },
    async stop() {
      image.close();
      for (const child of children.reverse()) await end(child);
      await rm(home, { recursive: true, force: true });
    },
  };
}

/** Looks until `condition` gives something, or fails with what it looked for. */
export async function until(what, condition, patience = PATIENCE_MS) {
  const deadline = Date.now() + patience;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (Date.now() > deadline) throw new Error(`it does not come to pass: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Asks the same of all nodes and waits until all have got there. */
export async function everybody(ask, verb, state) {
  const { nodes } = await ask("GET", "/v1/nodes");
  await Promise.all(nodes.map((node) => ask("PUT", `/v1/nodes/${node.uuid}/states/provision`, { target: verb })));
  await until(`all are ${state}`, async () => {
    const { nodes: now } = await ask("GET", "/v1/nodes?fields=provision_state,target_provision_state,last_error");
    const failed = now.find((node) => /failed|error/.test(node.provision_state));
    if (failed) throw new Error(`${failed.provision_state}: ${failed.last_error}`);
    return now.every((node) => node.provision_state === state && !node.target_provision_state);
  });
}

/** Gives the machines names, racks, owners, and what they need to be deployed. */
async function dress(ask, image) {
  const { nodes } = await ask("GET", "/v1/nodes");
  nodes.sort((one, other) => one.name.localeCompare(other.name));
  for (const [index, node] of nodes.entries()) {
    const rack = `r${String(Math.floor(index / 8) + 1).padStart(2, "0")}`;
    const changes = {
      name: `${rack}-u${String((index % 8) + 1).padStart(2, "0")}`, owner: ["platform", "research"][Math.floor(index / 8) % 2],
      boot_interface: "pxe", inspect_interface: "agent", automated_clean: true,
      extra: { rack }, instance_info: { image_source: image, image_checksum: DIGEST },
    };
    await ask("PATCH", `/v1/nodes/${node.uuid}`, Object.entries(changes).map(([name, value]) => ({ op: "add", path: `/${name}`,
      value })));
  }
}

function serveImage() {
  return new Promise((resolve) => {
    const server = http.createServer((request, response) => {
      response.writeHead(200, { "Content-Length": IMAGE.length });
      response.end(request.method === "GET" ? IMAGE : "");
    });
    server.listen(0, "127.0.0.1", () => resolve({ url: `http://127.0.0.1:${server.address().port}/image.raw`, digest: DIGEST,
      close: () => server.close() }));
  });
}

function start(words) {
  const child = spawn(BINARY, words, { stdio: ["ignore", "pipe", "pipe"] });
  child.told = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => { child.told += bytes; });
  child.on("error", (error) => { child.told += String(error); });
  return child;
}

async function said(child, words) {
  const found = await until(`it says ${words}`, () => {
    if (child.exitCode !== null) throw new Error(`it ended: ${child.told}`);
    return words.exec(child.told);
  });
  return found[1];
}

async function end(child) {
  if (child.exitCode !== null) return;
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGTERM");
  const patience = setTimeout(() => child.kill("SIGKILL"), 10_000);
  await ended;
  clearTimeout(patience);
}
