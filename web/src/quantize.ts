// The uniform quantizer of couplings, on codes: the counterpart of remcaps/parse_tree/quantizer.h.

import type { Layer } from "./schema";

/** K levels for every layer, the K each layer was measured with, or none. */
export type Levels = number | "run" | "off";

export interface LevelTable {
  index: Uint8Array; // code -> level
  value: Float32Array; // code -> the level's value
}

/** The level 0..K-1 of a coupling: ties go down, couplings outside [0, 1] to the first or last. */
export function levelOf(coupling: number, levels: number, form: Layer["form"]): number {
  const place = form === "uniform" ? coupling * (levels - 1) - 0.5 : coupling * levels - 1;
  // An edge that rounding error put a hair above itself still counts as the edge.
  return Math.min(levels - 1, Math.max(0, Math.ceil(place - 1e-9)));
}

export function levelValue(level: number, levels: number, form: Layer["form"]): number {
  return form === "uniform" ? level / (levels - 1) : (level + 0.5) / levels;
}

/** The number of levels a layer has under a choice; 0: unquantized. */
export function levelsFor(layer: Layer, levels: Levels): number {
  return levels === "run" ? layer.levels : levels === "off" ? 0 : levels;
}

export function levelTable(layer: Layer, decode: number[], levels: Levels): LevelTable {
  const count = levelsFor(layer, levels);
  const codes = decode.length;
  const index = new Uint8Array(codes);
  const value = new Float32Array(codes);
  for (let code = 0; code < codes; code++) {
    const coupling = decode[code];
    index[code] = count === 0 ? code : levelOf(coupling, count, layer.form);
    value[code] = count === 0 ? coupling : levelValue(index[code], count, layer.form);
  }
  return { index, value };
}

/** Shannon entropy of counts, in bits. */
export function entropyBits(counts: Iterable<number>): number {
  let total = 0;
  let sum = 0;
  for (const count of counts) {
    if (count === 0) continue;
    total += count;
    sum += count * Math.log2(count);
  }
  return total === 0 ? 0 : Math.max(0, Math.log2(total) - sum / total);
}
