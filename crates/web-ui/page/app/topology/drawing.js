// SPDX-License-Identifier: Apache-2.0
// Draws the part of the topology that is in sight, with as much detail as there is room for.

import { familyOf } from "../states.js";
import { colour } from "../theme.js";
import { LINKS } from "./model.js";

const NAMES_FROM = 0.55, PORTS_FROM = 0.12;

/** `view` is `{x, y, scale}`; `marked` are ports that stand out, or null if none is sought. */
export function draw(context, { layout, view, width, height, marked, hover, rows }) {
  const ratio = devicePixelRatio || 1;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.setTransform(ratio * view.scale, 0, 0, ratio * view.scale, -view.x * view.scale * ratio, -view.y * view.scale * ratio);
  const sight = { left: view.x, top: view.y, right: view.x + width / view.scale, bottom: view.y + height / view.scale };
  const family = getComputedStyle(document.body).fontFamily;
  context.textBaseline = "middle";
  for (const block of layout.blocks) {
    if (!meets(block, sight)) continue;
    if (view.scale < PORTS_FROM) { fromAfar(context, block, view.scale, marked, rows); continue; }
    for (const one of block.switches) for (const port of one.ports) link(context, port, sight,
      view.scale, marked, hover);
    for (const one of block.switches) if (meets(one, sight)) switchBox(context, one, sight, view.scale, marked, hover, family);
    for (const machine of block.members) if (meets(machine, sight)) machineBox(context, machine, view.scale, marked, hover, family,
      rows);
  }
}

/** From afar a machine is a spot in the colour of its state, and what is wrong or sought a ring around it. */
function fromAfar(context, { switches, members }, scale, marked, rows) {
  context.globalAlpha = marked ? 0.35 : 1;
  for (const one of switches) {
    context.fillStyle = colour("--line-strong");
    context.fillRect(one.x, one.y, one.width, one.height);
  }
  for (const machine of members) {
    const state = rows.get(machine.uuid)?.provision_state;
    context.fillStyle = colour(state ? `--state-${familyOf(state)}` : "--faint");
    context.fillRect(machine.x, machine.y - 12, machine.width, machine.height + 24);
  }
  context.globalAlpha = 1;
  for (const one of switches) {
    for (const port of one.ports) {
      const isBad = port.state === "moved" || port.state === "missing";
      if (!isBad && !marked?.has(port)) continue;
      const { machine } = port;
      context.strokeStyle = colour(isBad ? LINKS[port.state].colour : "--accent");
      context.lineWidth = 2.5 / scale;
      context.beginPath();
      context.arc(machine.x + machine.width / 2, machine.y + machine.height / 2, 7 / scale, 0, 2 * Math.PI);
      context.stroke();
    }
  }
}

const meets = (box, { left, top, right, bottom }) => box.x < right && box.x + box.width > left && box.y < bottom && box.y + box.height > top;

function link(context, port, sight, scale, marked, hover) {
  const { machine } = port;
  const [x1, x2] = [port.x + port.width / 2,
    machine.x + machine.width / 2 + (machine.ports.indexOf(port) - (machine.ports.length - 1) / 2) * 6];
  if (Math.max(x1, x2) < sight.left || Math.min(x1, x2) > sight.right) return;
  const isBelow = port.y > machine.y;
  const [y1, y2] = [isBelow ? port.y - 30 : port.y + port.height + 8, isBelow ? machine.y + machine.height : machine.y];
  const { colour: paint, isBroken } = LINKS[port.state];
  const isBad = port.state === "moved" || port.state === "missing";
  const isShown = hover === port || hover === machine || hover === port.on || marked?.has(port);
  context.globalAlpha = isShown || isBad ? 1 : marked ? 0.08 : 0.3;
  context.strokeStyle = colour(isShown && !isBad ? "--accent" : paint);
  context.lineWidth = (isShown || isBad ? 2 : 1) / Math.min(1, Math.max(scale, 0.3));
  context.setLineDash(isBroken ? [5, 4] : []);
  context.beginPath();
  context.moveTo(x1, y1);
  context.bezierCurveTo(x1, (y1 + y2) / 2, x2, (y1 + y2) / 2, x2, y2);
  context.stroke();
  context.setLineDash([]);
  context.globalAlpha = 1;
}

function switchBox(context, one, sight, scale, marked, hover, family) {
  box(context, one, colour("--raised"), colour(hover === one ? "--text" : "--line-strong"), 6);
  // The name is as large as it has to be to be read from here.
  context.font = `600 ${Math.min(22, Math.max(13, 13 / scale))}px ${family}`;
  // The name stays in sight while any of the switch is.
  const x = Math.max(one.x + 10, Math.min(sight.left + 10, one.x + one.width - 140));
  const named = write(context, one.label, x, one.y + 16, one.x + one.width - x - 8, colour("--text"));
  if (scale > NAMES_FROM) {
    context.font = `450 ${Math.min(16, Math.max(11, 11 / scale))}px ${family}`;
    write(context, `${one.ports.length} ports`, x + named + 14, one.y + 16, one.x + one.width - x - named - 22, colour("--quiet"));
  }
  for (const port of one.ports) {
    if (port.x > sight.right || port.x + port.width < sight.left) continue;
    const isBad = port.state === "moved" || port.state === "missing";
    context.globalAlpha = marked && !marked.has(port) && !isBad ? 0.25 : 1;
    const paint = colour(LINKS[port.state].colour);
    if (port.state === "missing" || port.state === "configured") box(context, port, colour("--sunken"), paint, 3);
    else box(context, port, paint, hover === port || marked?.has(port) ? colour("--text") : null, 3);
    if (isBad) sign(context, port, family);
    else if (port.width * scale > 18) {
      context.font = `520 ${Math.min(13, Math.max(9, 9.5 / scale))}px ${family}`;
      context.textAlign = "center";
      context.fillStyle = port.state === "heard" ? colour("--bg") : colour("--text");
      context.fillText(shortPort(port.id), port.x + port.width / 2, port.y + port.height / 2 + 0.5, port.width - 2);
      context.textAlign = "left";
    }
    context.globalAlpha = 1;
  }
}

/** What is wrong has a sign and not only a colour. */
function sign(context, port, family) {
  context.font = `700 14px ${family}`;
  context.textAlign = "center";
  context.fillStyle = port.state === "moved" ? colour("--bg") : colour("--danger");
  context.fillText(port.state === "moved" ? "≠" : "×", port.x + port.width / 2, port.y + port.height / 2 + 0.5);
  context.textAlign = "left";
}

function machineBox(context, machine, scale, marked, hover, family, rows) {
  const isMarked = !marked || machine.ports.some((port) => marked.has(port));
  const isBad = machine.ports.some((port) => port.state === "moved" || port.state === "missing");
  context.globalAlpha = isMarked || isBad ? 1 : 0.3;
  box(context, machine, colour("--panel"),
    colour(hover === machine || (marked && isMarked) ? "--accent" : isBad ? "--warn" : "--line-strong"), 4);
  const state = rows.get(machine.uuid)?.provision_state;
  context.fillStyle = state ? colour(`--state-${familyOf(state)}`) : colour("--line-strong");
  context.fillRect(machine.x + 3, machine.y + 3, 4, machine.height - 6);
  if (scale > NAMES_FROM) {
    fit(context, machine.label, machine.width - 14, Math.min(15, Math.max(11, 11 / scale)), family);
    write(context, machine.label, machine.x + 11, machine.y + machine.height / 2 + 0.5, machine.width - 13, colour("--text"));
  }
  context.globalAlpha = 1;
}

function box(context, { x, y, width, height }, fill, stroke, radius) {
  context.beginPath();
  context.roundRect(x, y, width, height, radius);
  context.fillStyle = fill;
  context.fill();
  if (stroke) { context.strokeStyle = stroke; context.lineWidth = 1.5; context.stroke(); }
}

const shortPort = (id) => /(\d+(?:\/\d+)*)$/.exec(id)?.[1] ?? id.slice(-4);

/** Takes the largest letters up to `size` with which the text fits, or small ones. */
function fit(context, text, room, size, family) {
  for (let at = size; ; at -= 0.5) {
    context.font = `540 ${at}px ${family}`;
    if (at <= 10 || context.measureText(text).width <= room) return;
  }
}

/** Writes as much as there is room for; gives how wide that is. */
function write(context, text, x, y, room, paint) {
  if (room < 12) return 0;
  let shown = text;
  while (shown.length > 2 && context.measureText(shown).width > room) shown = `${shown.slice(0, -2)}…`;
  context.fillStyle = paint;
  context.fillText(shown, x, y);
  return context.measureText(shown).width;
}
