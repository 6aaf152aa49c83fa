// SPDX-License-Identifier: Apache-2.0
// Draws the visible part of the grid on a canvas.

import { familyOf, isBusy, isFailed } from "../states.js";
import { colour } from "../theme.js";

const FLASH_MS = 1200;

/**
 * Draws the places between `scroll` and `scroll + height`. Gives true while something is still fading,
 * so that the caller draws again.
 */
export function draw(context, layout, places, view) {
  const { width, height, scroll, chosen, active, hovered, changed, focused } = view;
  const now = performance.now();
  context.clearRect(0, 0, width, height);
  let fading = false;
  const { cell, columns, pitch } = layout;
  const paints = {
    text: colour("--text"), quiet: colour("--quiet"), panel: colour("--panel"), line: colour("--line"), select: colour("--select"),
    focus: colour("--focus"), warn: colour("--warn"), bg: colour("--bg"), good: colour("--good"), faint: colour("--faint"),
  };
  const drawCell = { s: drawSmall, m: drawMedium, l: drawLarge }[layout.size];
  const fonts = fontsOf();
  const fills = fillsByState();
  for (const place of places) {
    const firstLine = Math.max(0, Math.floor((scroll - place.rowsTop) / pitch.y));
    const lastLine = Math.min(place.lines - 1, Math.floor((scroll + height - place.rowsTop) / pitch.y));
    for (let line = firstLine; line <= lastLine; line++) {
      const y = place.rowsTop + line * pitch.y - scroll;
      const end = Math.min(place.rows.length, (line + 1) * columns);
      for (let index = line * columns; index < end; index++) {
        const row = place.rows[index];
        const x = place.left + (index - line * columns) * pitch.x;
        const fill = fills(row.provision_state);
        drawCell(context, row, x, y, cell, fill, paints, fonts, row.uuid === hovered);
        const since = changed.get(row.uuid);
        if (since !== undefined && now - since < FLASH_MS) {
          fading = true;
          context.globalAlpha = 0.75 * (1 - (now - since) / FLASH_MS);
          context.fillStyle = "#ffffff";
          box(context, x, y, cell.width, cell.height, radiusOf(cell));
          context.fill();
          context.globalAlpha = 1;
        }
        if (chosen.has(row.uuid)) outline(context, x, y, cell, paints.select, 2);
        if (row.uuid === active && focused) outline(context, x - 2, y - 2,
          { width: cell.width + 4, height: cell.height + 4 }, paints.focus, 1.5);
      }
    }
  }
  return fading;
}

/** The colour of a state, looked up once for each draw. */
function fillsByState() {
  const known = new Map();
  return (state) => {
    let fill = known.get(state);
    if (fill === undefined) {
      fill = colour(`--state-${familyOf(state)}`);
      known.set(state, fill);
    }
    return fill;
  };
}

/** Small cells are many, so they are plain rectangles: nothing else is drawn as fast. */
function drawSmall(context, row, x, y, cell, fill, paints, fonts, hovered) {
  const busy = isBusy(row.provision_state);
  // A machine that is off and at rest stands back; one that failed never does.
  const isQuiet = row.power_state === "power off" && !busy && !isFailed(row.provision_state);
  context.fillStyle = fill;
  context.globalAlpha = hovered ? 1 : isQuiet ? 0.62 : 0.95;
  context.fillRect(x, y, cell.width, cell.height);
  context.globalAlpha = 1;
  if (busy) {
    context.fillStyle = paints.bg;
    context.fillRect(x + 4, y + 4, cell.width - 8, cell.height - 8);
  }
  if (row.maintenance) hatch(context, x, y, cell, paints.bg);
}

function drawMedium(context, row, x, y, cell, fill, paints, fonts, hovered) {
  plate(context, row, x, y, cell, fill, paints, hovered, 4);
  context.fillStyle = row.power_state === "power on" ? paints.text : paints.quiet;
  context.font = fonts.small;
  context.textBaseline = "middle";
  context.fillText(cut(context, shortName(row), cell.width - 14), x + 9, y + cell.height / 2 + 0.5);
}

function drawLarge(context, row, x, y, cell, fill, paints, fonts, hovered) {
  plate(context, row, x, y, cell, fill, paints, hovered, 5);
  context.textBaseline = "alphabetic";
  context.font = fonts.name;
  context.fillStyle = paints.text;
  context.fillText(cut(context, row.label, cell.width - 34), x + 13, y + 19);
  context.font = fonts.small;
  context.fillStyle = paints.quiet;
  const doing = row.why ? row.why : row.provision_state;
  context.fillText(cut(context, row.maintenance ? `maintenance · ${doing}` : doing, cell.width - 22), x + 13, y + 36);
  const lamp = row.power_state === "power on" ? paints.good : paints.faint;
  context.beginPath();
  context.arc(x + cell.width - 12, y + 14.5, 3, 0, Math.PI * 2);
  if (row.power_state === "power on") { context.fillStyle = lamp; context.fill(); } else { context.strokeStyle = lamp; context.lineWidth = 1; context.stroke(); }
}

/** A plate with the state's colour at its left edge and a wash of it behind. */
function plate(context, row, x, y, cell, fill, paints, hovered, edge) {
  const radius = radiusOf(cell);
  context.fillStyle = paints.panel;
  box(context, x, y, cell.width, cell.height, radius);
  context.fill();
  context.save();
  context.clip();
  context.globalAlpha = hovered ? 0.34 : familyOf(row.provision_state) === "failed" ? 0.3 : 0.17;
  context.fillStyle = fill;
  context.fillRect(x, y, cell.width, cell.height);
  context.globalAlpha = 1;
  context.fillRect(x, y, edge, cell.height);
  if (isBusy(row.provision_state)) {
    // A busy machine has a broken edge.
    context.fillStyle = paints.panel;
    for (let at = y + 3; at < y + cell.height; at += 7) context.fillRect(x, at, edge, 3);
  }
  if (row.maintenance) hatch(context, x, y, cell, paints.warn, 0.3);
  context.restore();
}

function hatch(context, x, y, cell, paint, alpha = 0.7) {
  context.save();
  box(context, x, y, cell.width, cell.height, radiusOf(cell));
  context.clip();
  context.strokeStyle = paint;
  context.globalAlpha = alpha;
  context.lineWidth = 1.6;
  context.beginPath();
  for (let at = -cell.height; at < cell.width; at += 6) {
    context.moveTo(x + at, y + cell.height);
    context.lineTo(x + at + cell.height, y);
  }
  context.stroke();
  context.restore();
}

function outline(context, x, y, cell, paint, width) {
  context.strokeStyle = paint;
  context.lineWidth = width;
  box(context, x, y, cell.width, cell.height, radiusOf(cell) + 1);
  context.stroke();
}

function box(context, x, y, width, height, radius) {
  context.beginPath();
  context.roundRect(x, y, width, height, radius);
}

const radiusOf = (cell) => (cell.height > 20 ? 5 : 3);

/** The last part of a name says which machine of its rack it is. */
function shortName(row) {
  return row.rack && row.label.startsWith(`${row.rack}-`) ? row.label.slice(row.rack.length + 1) : row.label;
}

const widths = new Map();
function cut(context, text, width) {
  const key = `${context.font}|${width}|${text}`;
  let shown = widths.get(key);
  if (shown === undefined) {
    shown = text;
    while (shown.length > 1 && context.measureText(shown).width > width) shown = `${shown.slice(0, -2)}…`;
    if (widths.size > 20000) widths.clear();
    widths.set(key, shown);
  }
  return shown;
}

let fonts = null;
function fontsOf() {
  if (!fonts) {
    const family = getComputedStyle(document.body).fontFamily;
    fonts = { small: `500 11.5px ${family}`, name: `600 13px ${family}` };
  }
  return fonts;
}
