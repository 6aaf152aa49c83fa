// SPDX-License-Identifier: Apache-2.0
// Draws the visible part of the grid on a canvas.

import { familyOf, isBusy, isFailed, stateLabel } from "../states.js";
import { colour } from "../theme.js";

const FLASH_MS = 1200;
/** The cache of shortened texts is emptied at this size. */
const MAX_CACHED_TEXTS = 20_000;

/**
 * @typedef {object} GridView
 * @property {number} width
 * @property {number} height
 * @property {number} scroll
 * @property {Set<string>} selected
 * @property {string | null} active the row at the cursor
 * @property {string | undefined} hovered
 * @property {Map<string, number>} changed when rows changed, as `performance.now()`
 * @property {boolean} focused
 */

/** @typedef {{ width: number, height: number }} Size */

/**
 * Draws the blocks between `scroll` and `scroll + height`. Returns whether an animation is running, so
 * that the caller draws again.
 * @param {CanvasRenderingContext2D} context
 * @param {import("./layout.js").GridLayout} layout
 * @param {import("./layout.js").Block[]} blocks
 * @param {GridView} view
 */
export function draw(context, layout, blocks, view) {
  const { width, height, scroll, selected, active, hovered, changed, focused } = view;
  const now = performance.now();
  context.clearRect(0, 0, width, height);
  let isAnimating = false;
  const { cell, columns, pitch } = layout;
  const drawCell = layout.size === "s" ? drawSmall : layout.size === "m" ? drawMedium : drawLarge;
  const style = { colours: readColours(), fonts: readFonts() };
  const fillOf = stateColours();
  for (const block of blocks) {
    const firstLine = Math.max(0, Math.floor((scroll - block.rowsTop) / pitch.y));
    const lastLine = Math.min(
      block.lines - 1,
      Math.floor((scroll + height - block.rowsTop) / pitch.y),
    );
    for (let line = firstLine; line <= lastLine; line++) {
      const y = block.rowsTop + line * pitch.y - scroll;
      const end = Math.min(block.rows.length, (line + 1) * columns);
      for (let index = line * columns; index < end; index++) {
        const row = block.rows[index];
        const x = block.left + (index - line * columns) * pitch.x;
        const fill = fillOf(row.provision_state);
        drawCell(context, row, x, y, cell, fill, style, row.uuid === hovered);
        const age = now - (changed.get(row.uuid) ?? -Infinity);
        if (age < FLASH_MS) {
          isAnimating = true;
          flash(context, x, y, cell, age);
        }
        if (selected.has(row.uuid)) outline(context, x, y, cell, style.colours.select, 2);
        if (row.uuid === active && focused) {
          const frame = { width: cell.width + 4, height: cell.height + 4 };
          outline(context, x - 2, y - 2, frame, style.colours.focus, 1.5);
        }
      }
    }
  }
  return isAnimating;
}

/** Returns a function that looks up the colour of a state once per draw. */
function stateColours() {
  /** @type {Map<string, string>} */
  const known = new Map();
  return (/** @type {string} */ state) => {
    let fill = known.get(state);
    if (fill === undefined) {
      fill = colour(`--state-${familyOf(state)}`);
      known.set(state, fill);
    }
    return fill;
  };
}

/** @typedef {{ colours: ReturnType<typeof readColours>, fonts: ReturnType<typeof readFonts> }} Style */
/**
 * @typedef {(context: CanvasRenderingContext2D, row: FleetRow, x: number, y: number, cell: Size,
 *   fill: string, style: Style, isHovered: boolean) => void} DrawCell
 */

/**
 * Small cells are plain rectangles, because there can be thousands of them.
 * @type {DrawCell}
 */
function drawSmall(context, row, x, y, cell, fill, { colours }, isHovered) {
  const busy = isBusy(row.provision_state);
  // Idle machines that are off are dimmed; failed ones never are.
  const isDimmed = row.power_state === "power off" && !busy && !isFailed(row.provision_state);
  context.fillStyle = fill;
  context.globalAlpha = isHovered ? 1 : isDimmed ? 0.62 : 0.95;
  context.fillRect(x, y, cell.width, cell.height);
  context.globalAlpha = 1;
  if (busy) {
    context.fillStyle = colours.bg;
    context.fillRect(x + 4, y + 4, cell.width - 8, cell.height - 8);
  }
  if (row.maintenance) hatch(context, x, y, cell, colours.bg, 0.7);
}

/** @type {DrawCell} */
function drawMedium(context, row, x, y, cell, fill, style, isHovered) {
  drawPlate(context, row, x, y, cell, fill, style, isHovered, 4);
  const { colours, fonts } = style;
  context.fillStyle = row.power_state === "power on" ? colours.text : colours.quiet;
  context.font = fonts.small;
  context.textBaseline = "middle";
  const text = shorten(context, shortName(row), cell.width - 14);
  context.fillText(text, x + 9, y + cell.height / 2 + 0.5);
}

/** @type {DrawCell} */
function drawLarge(context, row, x, y, cell, fill, style, isHovered) {
  drawPlate(context, row, x, y, cell, fill, style, isHovered, 5);
  const { colours, fonts } = style;
  context.textBaseline = "alphabetic";
  context.font = fonts.name;
  context.fillStyle = colours.text;
  context.fillText(shorten(context, row.label, cell.width - 34), x + 13, y + 19);
  context.font = fonts.small;
  context.fillStyle = colours.quiet;
  const activity = row.wait_reason ?? stateLabel(row.provision_state);
  const text = row.maintenance ? `maintenance · ${activity}` : activity;
  context.fillText(shorten(context, text, cell.width - 22), x + 13, y + 36);
  drawPowerLamp(context, row, x + cell.width - 12, y + 14.5, colours);
}

/**
 * A filled circle if the machine is on, an empty one if not.
 * @param {CanvasRenderingContext2D} context
 * @param {FleetRow} row
 * @param {number} x
 * @param {number} y
 * @param {Style["colours"]} colours
 */
function drawPowerLamp(context, row, x, y, colours) {
  context.beginPath();
  context.arc(x, y, 3, 0, Math.PI * 2);
  if (row.power_state === "power on") {
    context.fillStyle = colours.good;
    context.fill();
  } else {
    context.strokeStyle = colours.faint;
    context.lineWidth = 1;
    context.stroke();
  }
}

/**
 * A plate with the state's colour at its left edge and a tint of it as background.
 * @param {CanvasRenderingContext2D} context
 * @param {FleetRow} row
 * @param {number} x
 * @param {number} y
 * @param {Size} cell
 * @param {string} fill
 * @param {Style} style
 * @param {boolean} isHovered
 * @param {number} edge
 */
function drawPlate(context, row, x, y, cell, fill, { colours }, isHovered, edge) {
  context.fillStyle = colours.panel;
  roundedPath(context, x, y, cell, radiusOf(cell));
  context.fill();
  context.save();
  context.clip();
  context.globalAlpha = isHovered ? 0.34 : isFailed(row.provision_state) ? 0.3 : 0.17;
  context.fillStyle = fill;
  context.fillRect(x, y, cell.width, cell.height);
  context.globalAlpha = 1;
  context.fillRect(x, y, edge, cell.height);
  if (isBusy(row.provision_state)) {
    // The edge of a busy machine is dashed.
    context.fillStyle = colours.panel;
    for (let top = y + 3; top < y + cell.height; top += 7) context.fillRect(x, top, edge, 3);
  }
  if (row.maintenance) hatch(context, x, y, cell, colours.warn, 0.3);
  context.restore();
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x
 * @param {number} y
 * @param {Size} cell
 * @param {number} age
 */
function flash(context, x, y, cell, age) {
  context.globalAlpha = 0.75 * (1 - age / FLASH_MS);
  context.fillStyle = "#ffffff";
  roundedPath(context, x, y, cell, radiusOf(cell));
  context.fill();
  context.globalAlpha = 1;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x
 * @param {number} y
 * @param {Size} cell
 * @param {string} stroke
 * @param {number} alpha
 */
function hatch(context, x, y, cell, stroke, alpha) {
  context.save();
  roundedPath(context, x, y, cell, radiusOf(cell));
  context.clip();
  context.strokeStyle = stroke;
  context.globalAlpha = alpha;
  context.lineWidth = 1.6;
  context.beginPath();
  for (let offset = -cell.height; offset < cell.width; offset += 6) {
    context.moveTo(x + offset, y + cell.height);
    context.lineTo(x + offset + cell.height, y);
  }
  context.stroke();
  context.restore();
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x
 * @param {number} y
 * @param {Size} cell
 * @param {string} stroke
 * @param {number} width
 */
function outline(context, x, y, cell, stroke, width) {
  context.strokeStyle = stroke;
  context.lineWidth = width;
  roundedPath(context, x, y, cell, radiusOf(cell) + 1);
  context.stroke();
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x
 * @param {number} y
 * @param {Size} size
 * @param {number} radius
 */
function roundedPath(context, x, y, { width, height }, radius) {
  context.beginPath();
  context.roundRect(x, y, width, height, radius);
}

/** @param {Size} cell */
const radiusOf = (cell) => (cell.height > 20 ? 5 : 3);

/**
 * The name without the rack, which is the heading of the group.
 * @param {FleetRow} row
 */
function shortName(row) {
  const prefix = `${row.rack}-`;
  return row.rack && row.label.startsWith(prefix) ? row.label.slice(prefix.length) : row.label;
}

/** @type {Map<string, string>} */
const shortTexts = new Map();

/**
 * Shortens a text to a width, with an ellipsis. Measuring is slow, so results are cached.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} width
 */
function shorten(context, text, width) {
  const key = `${context.font}|${width}|${text}`;
  let short = shortTexts.get(key);
  if (short === undefined) {
    short = text;
    while (short.length > 1 && context.measureText(short).width > width)
      short = `${short.slice(0, -2)}…`;
    if (shortTexts.size > MAX_CACHED_TEXTS) shortTexts.clear();
    shortTexts.set(key, short);
  }
  return short;
}

function readColours() {
  return {
    text: colour("--text"),
    quiet: colour("--quiet"),
    panel: colour("--panel"),
    select: colour("--select"),
    focus: colour("--focus"),
    warn: colour("--warn"),
    bg: colour("--bg"),
    good: colour("--good"),
    faint: colour("--faint"),
  };
}

/** @type {{ small: string, name: string } | null} */
let fonts = null;
function readFonts() {
  if (!fonts) {
    const family = getComputedStyle(document.body).fontFamily;
    fonts = { small: `500 11.5px ${family}`, name: `600 13px ${family}` };
  }
  return fonts;
}
