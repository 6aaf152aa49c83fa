// SPDX-License-Identifier: Apache-2.0
// Draws the visible part of the topology map, with details depending on the scale.

import { familyOf } from "../states.js";
import { colour } from "../theme.js";
import { isProblem, linkStyle } from "./model.js";

/** The scales from which names and ports are drawn. */
const NAMES_SCALE = 0.55,
  PORTS_SCALE = 0.12;

/**
 * `marked` are the ports that match the search, null without one; `rows` have the machines' states.
 * @param {CanvasRenderingContext2D} context
 * @param {any} map
 */
export function draw(context, { layout, view, width, height, marked, hovered, rows }) {
  const ratio = devicePixelRatio || 1;
  const { scale } = view;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  const factor = ratio * scale;
  context.setTransform(factor, 0, 0, factor, -view.x * factor, -view.y * factor);
  const scene = {
    context,
    scale,
    marked,
    hovered,
    rows,
    viewport: {
      left: view.x,
      top: view.y,
      right: view.x + width / scale,
      bottom: view.y + height / scale,
    },
    family: getComputedStyle(document.body).fontFamily,
  };
  context.textBaseline = "middle";
  for (const block of layout.blocks) {
    if (!isVisible(block, scene)) continue;
    if (scale < PORTS_SCALE) {
      drawDistant(scene, block);
      continue;
    }
    for (const one of block.switches) for (const port of one.ports) drawLink(scene, port);
    for (const one of block.switches) if (isVisible(one, scene)) drawSwitch(scene, one);
    for (const machine of block.members) if (isVisible(machine, scene)) drawMachine(scene, machine);
  }
}

const isVisible = (box, { viewport: { left, top, right, bottom } }) =>
  box.x < right && box.x + box.width > left && box.y < bottom && box.y + box.height > top;

/** At small scales a machine is a spot in the colour of its state, with a ring if it stands out. */
function drawDistant({ context, scale, marked, rows }, { switches, members }) {
  context.globalAlpha = marked ? 0.35 : 1;
  context.fillStyle = colour("--line-strong");
  for (const one of switches) context.fillRect(one.x, one.y, one.width, one.height);
  for (const machine of members) {
    const state = rows.get(machine.uuid)?.provision_state;
    context.fillStyle = colour(state ? `--state-${familyOf(state)}` : "--faint");
    context.fillRect(machine.x, machine.y - 12, machine.width, machine.height + 24);
  }
  context.globalAlpha = 1;
  for (const port of switches.flatMap((one) => one.ports)) {
    if (!isProblem(port) && !marked?.has(port)) continue;
    const { machine } = port;
    context.strokeStyle = colour(isProblem(port) ? linkStyle(port.state).colour : "--accent");
    context.lineWidth = 2.5 / scale;
    context.beginPath();
    const x = machine.x + machine.width / 2,
      y = machine.y + machine.height / 2;
    context.arc(x, y, 7 / scale, 0, 2 * Math.PI);
    context.stroke();
  }
}

function drawLink({ context, viewport, scale, marked, hovered }, port) {
  const { machine } = port;
  // The links of a machine start side by side.
  const offset = (machine.ports.indexOf(port) - (machine.ports.length - 1) / 2) * 6;
  const x1 = port.x + port.width / 2,
    x2 = machine.x + machine.width / 2 + offset;
  if (Math.max(x1, x2) < viewport.left || Math.min(x1, x2) > viewport.right) return;
  const isBelow = port.y > machine.y;
  const y1 = isBelow ? port.y - 30 : port.y + port.height + 8,
    y2 = isBelow ? machine.y + machine.height : machine.y;
  const { colour: stroke, isDashed } = linkStyle(port.state);
  const isHighlighted =
    hovered === port || hovered === machine || hovered === port.on || marked?.has(port);
  const standsOut = isHighlighted || isProblem(port);
  context.globalAlpha = standsOut ? 1 : marked ? 0.08 : 0.3;
  context.strokeStyle = colour(isHighlighted && !isProblem(port) ? "--accent" : stroke);
  context.lineWidth = (standsOut ? 2 : 1) / Math.min(1, Math.max(scale, 0.3));
  context.setLineDash(isDashed ? [5, 4] : []);
  context.beginPath();
  context.moveTo(x1, y1);
  context.bezierCurveTo(x1, (y1 + y2) / 2, x2, (y1 + y2) / 2, x2, y2);
  context.stroke();
  context.setLineDash([]);
  context.globalAlpha = 1;
}

function drawSwitch(scene, one) {
  const { context, viewport, scale, hovered, family } = scene;
  drawBox(
    context,
    one,
    colour("--raised"),
    colour(hovered === one ? "--text" : "--line-strong"),
    6,
  );
  // At small scales the name is drawn larger, so that it stays readable.
  context.font = `600 ${Math.min(22, Math.max(13, 13 / scale))}px ${family}`;
  // The name stays visible while a part of the switch is.
  const x = Math.max(one.x + 10, Math.min(viewport.left + 10, one.x + one.width - 140));
  const end = one.x + one.width - 8;
  const nameWidth = drawText(context, one.label, x, one.y + 16, end - x, colour("--text"));
  if (scale > NAMES_SCALE) {
    context.font = `450 ${Math.min(16, Math.max(11, 11 / scale))}px ${family}`;
    const start = x + nameWidth + 14;
    drawText(
      context,
      `${one.ports.length} ports`,
      start,
      one.y + 16,
      end - start,
      colour("--quiet"),
    );
  }
  for (const port of one.ports) {
    if (port.x <= viewport.right && port.x + port.width >= viewport.left) drawPort(scene, port);
  }
}

function drawPort({ context, scale, marked, hovered, family }, port) {
  const isMarked = !!marked?.has(port);
  const { colour: name, isDashed } = linkStyle(port.state);
  context.globalAlpha = marked && !isMarked && !isProblem(port) ? 0.25 : 1;
  if (isDashed) drawBox(context, port, colour("--sunken"), colour(name), 3);
  else {
    const stroke = hovered === port || isMarked ? colour("--text") : null;
    drawBox(context, port, colour(name), stroke, 3);
  }
  const x = port.x + port.width / 2,
    y = port.y + port.height / 2 + 0.5;
  context.textAlign = "center";
  if (isProblem(port)) {
    // A sign, because colour alone is not accessible.
    context.font = `700 14px ${family}`;
    context.fillStyle = colour(port.state === "moved" ? "--bg" : "--danger");
    context.fillText(port.state === "moved" ? "≠" : "×", x, y);
  } else if (port.width * scale > 18) {
    context.font = `520 ${Math.min(13, Math.max(9, 9.5 / scale))}px ${family}`;
    context.fillStyle = colour(isDashed ? "--text" : "--bg");
    context.fillText(shortPortName(port.id), x, y, port.width - 2);
  }
  context.textAlign = "left";
  context.globalAlpha = 1;
}

function drawMachine({ context, scale, marked, hovered, family, rows }, machine) {
  const isMarked = !marked || machine.ports.some((port) => marked.has(port));
  const hasProblem = machine.ports.some(isProblem);
  const isHighlighted = hovered === machine || (marked && isMarked);
  const border = isHighlighted ? "--accent" : hasProblem ? "--warn" : "--line-strong";
  context.globalAlpha = isMarked || hasProblem ? 1 : 0.3;
  drawBox(context, machine, colour("--panel"), colour(border), 4);
  const state = rows.get(machine.uuid)?.provision_state;
  context.fillStyle = colour(state ? `--state-${familyOf(state)}` : "--line-strong");
  context.fillRect(machine.x + 3, machine.y + 3, 4, machine.height - 6);
  if (scale > NAMES_SCALE) {
    const size = Math.min(15, Math.max(11, 11 / scale));
    setFittingFont(context, machine.label, machine.width - 14, size, family);
    const y = machine.y + machine.height / 2 + 0.5;
    drawText(context, machine.label, machine.x + 11, y, machine.width - 13, colour("--text"));
  }
  context.globalAlpha = 1;
}

function drawBox(context, { x, y, width, height }, fill, stroke, radius) {
  context.beginPath();
  context.roundRect(x, y, width, height, radius);
  context.fillStyle = fill;
  context.fill();
  if (!stroke) return;
  context.strokeStyle = stroke;
  context.lineWidth = 1.5;
  context.stroke();
}

/**
 * The numbers at the end of a port's name: `1/3` of `Ethernet1/3`.
 * @param {string} id
 */
const shortPortName = (id) => /(\d+(?:\/\d+)*)$/.exec(id)?.[1] ?? id.slice(-4);

/** Sets the largest font up to `size`, but at least 10 px, with which the text fits. */
function setFittingFont(context, text, width, size, family) {
  for (let pixels = size; ; pixels -= 0.5) {
    context.font = `540 ${pixels}px ${family}`;
    if (pixels <= 10 || context.measureText(text).width <= width) return;
  }
}

/** Draws a text, shortened to the available width; returns the drawn width. */
function drawText(context, text, x, y, width, fill) {
  if (width < 12) return 0;
  let short = text;
  while (short.length > 2 && context.measureText(short).width > width)
    short = `${short.slice(0, -2)}…`;
  context.fillStyle = fill;
  context.fillText(short, x, y);
  return context.measureText(short).width;
}
