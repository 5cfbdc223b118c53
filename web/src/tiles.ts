// How a layer of many capsules is laid out as tiles: one per capsule type, one cell per place.
// The counterpart of remcaps/explain/capsule_tiles.h; tests/explain/trees.json tests both.

import type { Grid } from "./schema";

/** Layers with more capsules than this are drawn as tiles. */
export const MOST_NODES = 96;

const CAPSULES_PER_ROW = 48;

/** The layer's grids; one grid of all capsules in their order if some of them have no place. */
export function tileGrids(children: number, grids: Grid[]): Grid[] {
  const places = grids.reduce((sum, grid) => sum + grid.types * grid.height * grid.width, 0);
  if (places === children) return grids;
  const width = Math.min(children, CAPSULES_PER_ROW);
  const height = Math.ceil(children / width);
  return [
    {
      offset: 0,
      types: 1,
      height,
      width,
      stride_type: height * width,
      stride_y: width,
      stride_x: 1,
      field: null,
    },
  ];
}

/** Rows of equal length if the number of types allows it, together about twice as wide as high. */
export function tilesPerRow({ types, height, width }: Grid): number {
  const wanted = Math.sqrt((2.4 * types * height) / width);
  const divisors = Array.from({ length: types }, (_, k) => k + 1).filter((k) => types % k === 0);
  const nearest = divisors.reduce((best, k) =>
    Math.abs(k - wanted) < Math.abs(best - wanted) ? k : best,
  );
  if (nearest >= wanted / 2 && nearest <= 2 * wanted) return nearest;
  return Math.min(types, Math.max(1, Math.round(wanted)));
}

/** The side of a cell's square, as a part of the cell: never too small to be seen. */
export function cellSide(activation: number, largest: number): number {
  return 0.45 + 0.45 * Math.sqrt(largest > 0 ? activation / largest : 0);
}
