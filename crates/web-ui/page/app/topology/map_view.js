// SPDX-License-Identifier: Apache-2.0
// The visible part of the topology map.

const MIN_SCALE = 0.005,
  MAX_SCALE = 3;
/** The largest scale that fits the whole map, and the smallest one at which names are readable. */
const MAX_FIT_SCALE = 1.4,
  READABLE_SCALE = 0.45;
const MARGIN = 24;
/** With more blocks the whole map is shown, however small. */
const MAX_READABLE_BLOCKS = 3;

/** @typedef {{ x: number, y: number, scale: number }} MapView the top left corner and the scale */
/** @typedef {{ x: number, y: number, width: number, height: number }} Box */
/** @typedef {{ width: number, height: number, blocks: any[] }} MapLayout */

/**
 * The view of the whole map, or of its left part if it would be too small to read.
 * @param {MapLayout} layout
 * @param {{ width: number, height: number }} size
 * @returns {MapView}
 */
export function fitView(layout, { width, height }) {
  if (!width || !layout.width) return { x: 0, y: 0, scale: 1 };
  const fitHeight = (height - 2 * MARGIN) / layout.height;
  const whole = Math.min((width - 2 * MARGIN) / layout.width, fitHeight, MAX_FIT_SCALE);
  const isMap = layout.blocks.length > MAX_READABLE_BLOCKS;
  const readable = Math.max(whole, Math.min(READABLE_SCALE, fitHeight));
  const scale = Math.max(isMap ? whole : readable, MIN_SCALE);
  // Centred if it fits, otherwise from the left and the top.
  const start = (available, content) =>
    content * scale <= available ? -(available / scale - content) / 2 : -MARGIN / scale;
  return { x: start(width, layout.width), y: start(height, layout.height), scale };
}

/**
 * Zooms around a point of the canvas, which keeps its position.
 * @param {MapView} view
 * @param {number} factor
 * @param {number} canvasX
 * @param {number} canvasY
 * @returns {MapView}
 */
export function zoomView({ x, y, scale }, factor, canvasX, canvasY) {
  const next = Math.min(MAX_SCALE, Math.max(MIN_SCALE, scale * factor));
  return {
    scale: next,
    x: x + canvasX / scale - canvasX / next,
    y: y + canvasY / scale - canvasY / next,
  };
}

/**
 * The port, machine or switch at a point of the canvas, or null.
 * @param {MapLayout} layout
 * @param {MapView} view
 * @param {number} canvasX
 * @param {number} canvasY
 */
export function itemAt(layout, view, canvasX, canvasY) {
  const x = view.x + canvasX / view.scale,
    y = view.y + canvasY / view.scale;
  const contains = (/** @type {Box} */ box) =>
    box.x <= x && x <= box.x + box.width && box.y <= y && y <= box.y + box.height;
  const block = layout.blocks.find(contains);
  if (!block) return null;
  const machine = block.members.find(contains);
  if (machine) return machine;
  const one = block.switches.find(contains);
  return one?.ports.find(contains) ?? one ?? null;
}
