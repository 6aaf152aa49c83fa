// SPDX-License-Identifier: Apache-2.0
// The positions of groups and cells in the grid. Only arithmetic, so that ten thousand machines cost
// nothing until they are drawn.
//
// Many small groups, such as racks, are blocks of equal width side by side in horizontal bands; few or
// large groups take the full width.

/** The heights of a group's heading and of the space below a band, in pixels. */
const HEADING = 30,
  BELOW = 14;
/** The space between two blocks. */
const BLOCK_GAP = 22;
/** The desired width of a block relative to its height. */
const ASPECT_RATIO = 2.2;
/** The heading has to fit. */
const MIN_BLOCK_WIDTH = 150;
/** Larger groups take the full width. */
const MAX_BLOCK_ROWS = 120;

/**
 * Cell sizes in pixels: small cells are a colour, large ones have a name and a state.
 * @type {Record<string, { width: number, height: number, gap: number }>}
 */
const CELL_SIZES = {
  s: { width: 13, height: 13, gap: 2 },
  m: { width: 62, height: 24, gap: 3 },
  l: { width: 150, height: 46, gap: 5 },
};

/** @typedef {RowGroup & { top: number, rowsTop: number, lines: number, left: number }} Block */
/** @typedef {{ top: number, bottom: number, blocks: Block[] }} Band */
/**
 * @typedef {object} GridLayout
 * @property {Band[]} bands from top to bottom
 * @property {number} columns cells side by side in a block
 * @property {number} height
 * @property {{ width: number, height: number, gap: number }} cell
 * @property {{ x: number, y: number }} pitch the distance between the left or top edges of cells
 * @property {string} size
 */

/**
 * The cell size that shows this many machines without much scrolling.
 * @param {number} count
 */
export function defaultCellSize(count) {
  if (count <= 60) return "l";
  return count <= 700 ? "m" : "s";
}

/**
 * @param {RowGroup[]} groups
 * @param {number} width
 * @param {string} size
 * @returns {GridLayout}
 */
export function layoutGroups(groups, width, size) {
  const cell = { ...CELL_SIZES[size] };
  const pitch = { x: cell.width + cell.gap, y: cell.height + cell.gap };
  const columns = blockColumns(groups, width, cell.gap, pitch);
  const blocksPerBand = Math.max(
    1,
    Math.floor((width + BLOCK_GAP) / (columns * pitch.x + BLOCK_GAP)),
  );
  if (size !== "s") {
    // Cells with text share the remaining width.
    const blockWidth = (width + BLOCK_GAP) / blocksPerBand - BLOCK_GAP;
    cell.width = Math.max(cell.width, Math.floor((blockWidth + cell.gap) / columns) - cell.gap);
    pitch.x = cell.width + cell.gap;
  }
  /** @type {Band[]} */
  const bands = [];
  let top = 0;
  for (let first = 0; first < groups.length; first += blocksPerBand) {
    const blocks = groups.slice(first, first + blocksPerBand).map((group, index) => ({
      ...group,
      top,
      rowsTop: top + (group.name ? HEADING : 0),
      lines: Math.ceil(group.rows.length / columns),
      left: index * (columns * pitch.x + BLOCK_GAP),
    }));
    const bottom =
      Math.max(...blocks.map((block) => block.rowsTop + block.lines * pitch.y)) + BELOW;
    bands.push({ top, bottom, blocks });
    top = bottom;
  }
  return { bands, columns, height: top, cell, pitch, size };
}

/**
 * The number of cells side by side in each block.
 * @param {RowGroup[]} groups
 * @param {number} width
 * @param {number} gap
 * @param {{ x: number, y: number }} pitch
 */
function blockColumns(groups, width, gap, pitch) {
  const fullWidth = Math.max(1, Math.floor((width + gap) / pitch.x));
  const largest = Math.max(1, ...groups.map((group) => group.rows.length));
  const desired = Math.max(
    Math.ceil(Math.sqrt((largest * ASPECT_RATIO * pitch.y) / pitch.x)),
    Math.ceil(MIN_BLOCK_WIDTH / pitch.x),
  );
  const fitsTwice = desired * pitch.x * 2 + BLOCK_GAP <= width;
  const isSideBySide = groups.length > 2 && fitsTwice && largest <= MAX_BLOCK_ROWS;
  return isSideBySide ? Math.min(desired, fullWidth) : fullWidth;
}

/**
 * The blocks of all bands that overlap the vertical range.
 * @param {GridLayout} layout
 * @param {number} from
 * @param {number} to
 */
export function visibleBlocks(layout, from, to) {
  return bandsWithin(layout, from, to).flatMap((band) => band.blocks);
}

/**
 * @param {GridLayout} layout
 * @param {number} from
 * @param {number} to
 */
function bandsWithin({ bands }, from, to) {
  let low = 0,
    high = bands.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (bands[middle].bottom <= from) low = middle + 1;
    else high = middle;
  }
  let end = low;
  while (end < bands.length && bands[end].top < to) end++;
  return bands.slice(low, end);
}

/**
 * The row at a point, or null.
 * @param {GridLayout} layout
 * @param {number} x
 * @param {number} y
 */
export function rowAt(layout, x, y) {
  const { columns, pitch, cell } = layout;
  for (const block of visibleBlocks(layout, y, y + 1)) {
    const column = Math.floor((x - block.left) / pitch.x);
    const line = Math.floor((y - block.rowsTop) / pitch.y);
    if (column < 0 || column >= columns || line < 0) continue;
    if ((x - block.left) % pitch.x > cell.width) return null;
    return block.rows[line * columns + column] ?? null;
  }
  return null;
}

/**
 * The position of a row's cell, or null.
 * @param {GridLayout} layout
 * @param {string} uuid
 */
export function findCell({ bands, columns, pitch }, uuid) {
  for (const [band, { blocks }] of bands.entries()) {
    for (const block of blocks) {
      const index = block.rows.findIndex((row) => row.uuid === uuid);
      if (index < 0) continue;
      return {
        block,
        index,
        band,
        x: block.left + (index % columns) * pitch.x,
        y: block.rowsTop + Math.floor(index / columns) * pitch.y,
      };
    }
  }
  return null;
}

/**
 * The row above (-1) or below (1), in the next band if necessary; the first row without a cursor.
 * @param {GridLayout} layout
 * @param {string | null} uuid
 * @param {-1 | 1} direction
 */
export function neighbourCell(layout, uuid, direction) {
  const at = uuid ? findCell(layout, uuid) : null;
  if (!at) return layout.bands[0]?.blocks[0]?.rows[0]?.uuid;
  const { columns, bands, pitch } = layout;
  const line = Math.floor(at.index / columns) + direction;
  if (line >= 0 && line < at.block.lines)
    return (at.block.rows[at.index + direction * columns] ?? at.block.rows.at(-1))?.uuid;
  const next = bands[at.band + direction];
  if (!next) return uuid ?? undefined;
  const distance = (/** @type {Block} */ block) => Math.abs(block.left - at.block.left);
  const nearest = next.blocks.reduce((best, block) =>
    distance(block) < distance(best) ? block : best,
  );
  const start = direction > 0 ? 0 : (nearest.lines - 1) * columns;
  const column = Math.min(columns - 1, Math.max(0, Math.round((at.x - nearest.left) / pitch.x)));
  return (nearest.rows[start + column] ?? nearest.rows.at(-1))?.uuid;
}

/**
 * The UUIDs of all cells in a rectangle.
 * @param {GridLayout} layout
 * @param {number} left
 * @param {number} top
 * @param {number} right
 * @param {number} bottom
 */
export function uuidsInRectangle(layout, left, top, right, bottom) {
  const { columns, pitch } = layout;
  const uuids = [];
  for (const block of visibleBlocks(layout, top, bottom)) {
    const firstLine = Math.max(0, Math.floor((top - block.rowsTop) / pitch.y));
    const lastLine = Math.min(block.lines - 1, Math.floor((bottom - block.rowsTop) / pitch.y));
    const firstColumn = Math.max(0, Math.floor((left - block.left) / pitch.x));
    const lastColumn = Math.min(columns - 1, Math.floor((right - block.left) / pitch.x));
    for (let line = firstLine; line <= lastLine; line++) {
      for (let column = firstColumn; column <= lastColumn; column++) {
        const row = block.rows[line * columns + column];
        if (row) uuids.push(row.uuid);
      }
    }
  }
  return uuids;
}
