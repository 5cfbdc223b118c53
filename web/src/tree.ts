// Parse trees and saliency maps of one image or of many, from the couplings in the page.

import type { Contributions, LayerData, RunData } from "./data";
import type { Answer } from "./network";
import type { FieldAxis, Grid, Layer } from "./schema";
import type { Levels, LevelTable } from "./quantize";
import { entropyBits, levelTable } from "./quantize";

/** One level of a tree. Children are columns of the layer below, parents of the layer above. */
export interface TreeLevel {
  layer: Pick<LayerData, "info">;
  coupling: Float32Array; // [I, J]; only the followed parent's column if others are not stored
  activations: Float32Array; // ||u_i||, [I]
}

export interface Tree {
  target: number; // the class capsule it is followed from
  levels: TreeLevel[]; // stored routing layers, the one next to the image first
  classes: Float32Array; // ||v_j||, [J]
}

/** 1 / |Omega| of the parents' layer (paper, appendix), or one that was chosen. */
export type Threshold = "adaptive" | number;

export const thresholdOf = (level: TreeLevel, threshold: Threshold): number =>
  threshold === "adaptive" ? 1 / level.layer.info.parents : threshold;

// A float32 0.1 is a hair above 0.1: a coupling that equals the threshold does not pass it.
const passes = (coupling: number, threshold: number): boolean => coupling > threshold + 1e-6;

/** The routing layers whose couplings are in the page, unbroken up to the class capsules. */
export function storedLayers(run: RunData): LayerData[] {
  const first = run.layers.findLastIndex((layer) => layer.columns === "none") + 1;
  return run.layers.slice(first);
}

/** A mean of the trees of `samples`, followed from class `target`. */
export function treeOf(run: RunData, samples: number[], target: number, levels: Levels): Tree {
  const classCount = run.info.entropy_per_class.length;
  const classes = new Float32Array(classCount);
  for (const sample of samples) {
    for (let j = 0; j < classCount; j++) {
      classes[j] += run.activations[sample * classCount + j] / 65535 / samples.length;
    }
  }
  const treeLevels = storedLayers(run).map((layer) =>
    meanLevel(layer, samples, target, run.predicted, levels),
  );
  return { target, levels: treeLevels, classes };
}

function meanLevel(
  layer: LayerData,
  samples: number[],
  target: number,
  predicted: number[],
  levels: Levels,
): TreeLevel {
  const { children, parents } = layer.info;
  const { value } = tableOf(layer, levels);
  const coupling = new Float32Array(children * parents);
  const activations = new Float32Array(children);
  for (const sample of samples) {
    for (let i = 0; i < children; i++) {
      activations[i] += layer.activations[sample * children + i] / 255 / samples.length;
    }
  }
  if (layer.columns === "all") {
    for (const sample of samples) {
      const first = sample * coupling.length;
      for (let e = 0; e < coupling.length; e++) {
        coupling[e] += value[layer.codes[first + e]] / samples.length;
      }
    }
  } else {
    const of = samples.filter((sample) => predicted[sample] === target);
    for (const sample of of) {
      for (let i = 0; i < children; i++) {
        coupling[i * parents + target] += value[layer.codes[sample * children + i]] / of.length;
      }
    }
  }
  return { layer, coupling, activations };
}

const tables = new Map<string, LevelTable>();
const tableIds = new WeakMap<LayerData, number>();
let nextTableId = 0;

export function tableOf(layer: LayerData, levels: Levels): LevelTable {
  if (!tableIds.has(layer)) tableIds.set(layer, nextTableId++);
  const key = `${tableIds.get(layer)}:${levels}`;
  let table = tables.get(key);
  if (!table) {
    table = levelTable(layer.info, layer.decode, levels);
    tables.set(key, table);
  }
  return table;
}

export interface Edge {
  child: number;
  parent: number;
  coupling: number;
}

export interface Backtrack {
  edges: Edge[][]; // per level, from the class capsule down
  reached: Set<number>[]; // children of each level with a path to the class capsule
}

/**
 * Follows the connections that start from the class capsule (paper, section 3.3): a coupling above
 * the threshold, out of a capsule whose own in-degree is at least one (the first layer has none).
 */
export function backtrack(tree: Tree, threshold: Threshold): Backtrack {
  const edges: Edge[][] = tree.levels.map(() => []);
  const reached: Set<number>[] = tree.levels.map(() => new Set<number>());
  let parents = new Set<number>([tree.target]);
  for (let l = tree.levels.length - 1; l >= 0; l--) {
    const level = tree.levels[l];
    const { children, parents: parentCount } = level.layer.info;
    const limit = thresholdOf(level, threshold);
    const below = l > 0 ? tree.levels[l - 1] : null;
    for (let i = 0; i < children; i++) {
      if (below && inDegree(below, i, thresholdOf(below, threshold)) < 1) continue;
      for (const j of parents) {
        const coupling = level.coupling[i * parentCount + j];
        if (!passes(coupling, limit)) continue;
        edges[l].push({ child: i, parent: j, coupling });
        reached[l].add(i);
      }
    }
    parents = reached[l];
  }
  return { edges, reached };
}

/** Couplings into capsule j from the layer below that pass the threshold. */
export function inDegree(level: TreeLevel, j: number, threshold: number): number {
  const { children, parents } = level.layer.info;
  let degree = 0;
  for (let i = 0; i < children; i++) {
    if (passes(level.coupling[i * parents + j], threshold)) degree++;
  }
  return degree;
}

export interface SaliencyMap {
  values: Float32Array; // [H, W]
  height: number;
  width: number;
}

/** Whether a layer's children have a place in the image: a map of more than one cell. */
export const hasPlace = (layer: Layer): boolean =>
  layer.grids.some((grid) => grid.height * grid.width > 1);

/**
 * ||u|| times the coupling to the followed class, placed on the image. If there are hidden capsules
 * between, a child's coupling is the sum over its paths up to the class.
 * The counterpart of remcaps/explain/saliency.h.
 */
export function saliencyOf(
  tree: Tree,
  height: number,
  width: number,
  input: [number, number],
): SaliencyMap | null {
  const at = tree.levels.findLastIndex((level) => hasPlace(level.layer.info));
  if (at < 0) return null;
  const weights = pathWeights(tree, at);
  const level = tree.levels[at];
  const products = level.activations.map((activation, i) => activation * weights[i]);
  return placeOnImage(products, level.layer.info.grids, height, width, input);
}

/**
 * A value of each capsule as a map: spread over the pixels that the capsule sees, by a Gaussian with a
 * quarter of the field's size as its deviation. Without known fields: the mean over the types of each
 * place, enlarged bilinearly; several maps (DeepCaps has two) are weighted by their types.
 */
export function placeOnImage(
  values: ArrayLike<number>,
  grids: Grid[],
  height: number,
  width: number,
  input: [number, number],
): SaliencyMap {
  const placed = new Float32Array(height * width);
  const known = grids.every((grid) => grid.field);
  const types = grids.reduce((sum, grid) => sum + grid.types, 0);
  for (const grid of grids) {
    const map = new Float32Array(grid.height * grid.width);
    forEachCell(grid, (index, _type, y, x) => {
      map[y * grid.width + x] += known ? values[index] : values[index] / types;
    });
    if (!known) {
      const large = enlarge(map, grid.height, grid.width, height, width);
      for (let p = 0; p < placed.length; p++) placed[p] += large[p];
      continue;
    }
    const rows = fieldWeights(grid.field!.y, grid.height, height, input[0]);
    const columns = fieldWeights(grid.field!.x, grid.width, width, input[1]);
    for (let m = 0; m < grid.height; m++) {
      for (let n = 0; n < grid.width; n++) {
        const value = map[m * grid.width + n];
        for (let y = 0; y < height; y++) {
          const part = value * rows[m][y];
          if (part === 0) continue;
          for (let x = 0; x < width; x++) placed[y * width + x] += part * columns[n][x];
        }
      }
    }
  }
  return { values: placed, height, width };
}

/** How much of a value each of `pixels` gets, for each place; the image may be smaller than the input. */
function fieldWeights(
  { first, step, size }: FieldAxis,
  places: number,
  pixels: number,
  input: number,
): Float64Array[] {
  return Array.from({ length: places }, (_, n) => {
    const centre = first + n * step;
    const away = Float64Array.from({ length: pixels }, (__, p) =>
      Math.abs(((p + 0.5) * input) / pixels - 0.5 - centre),
    );
    const nearest = Math.min(...away);
    const reach = Math.max((size - 1) / 2, nearest);
    const weights = away.map((d) =>
      d <= reach ? Math.exp(-8 * ((d * d - nearest * nearest) / (size * size))) : 0,
    );
    const sum = weights.reduce((total, weight) => total + weight, 0);
    return weights.map((weight) => weight / sum);
  });
}

/** What the capsules contribute to the answers of some images, as a mean. */
export interface Parts {
  values: Float32Array; // [I]
  positive: number; // the sum of those that are for the answer
  evidence: number;
  bias: number;
  carrying: Set<number>; // the fewest capsules that carry half of the positive contributions
}

export function partsOf(contributions: Contributions, samples: number[]): Parts {
  const { children } = contributions.info;
  const values = new Float32Array(children);
  let [positive, evidence, bias] = [0, 0, 0];
  for (const sample of samples) {
    for (let i = 0; i < children; i++)
      values[i] += contributions.values[sample * children + i] / samples.length;
    positive += contributions.positive[sample] / samples.length;
    evidence += contributions.evidence[sample] / samples.length;
    bias += contributions.bias[sample] / samples.length;
  }
  return { values, positive, evidence, bias, carrying: carryingHalf(values) };
}

/** What the answer of a network is made of. */
export function partsOfAnswer({ contributions, evidence, bias }: Answer): Parts {
  const positive = positiveSum(contributions);
  return {
    values: contributions,
    positive,
    evidence,
    bias,
    carrying: carryingHalf(contributions),
  };
}

export const positiveSum = (values: Float32Array): number =>
  values.reduce((sum, value) => sum + Math.max(0, value), 0);

/** The fewest capsules that carry half of the positive contributions. */
function carryingHalf(values: Float32Array): Set<number> {
  const half = positiveSum(values) * (0.5 - 1e-9);
  const order = [...values.keys()]
    .filter((i) => values[i] > 0)
    .sort((a, b) => values[b] - values[a]);
  const carrying = new Set<number>();
  let carried = 0;
  for (const i of order) {
    if (carried >= half) break;
    carrying.add(i);
    carried += values[i];
  }
  return carrying;
}

/** The coupling of each child of level `at` to the followed class, over all paths. */
function pathWeights(tree: Tree, at: number): Float32Array {
  let above = new Float32Array(tree.classes.length);
  above[tree.target] = 1;
  for (let l = tree.levels.length - 1; l >= at; l--) {
    const { children, parents } = tree.levels[l].layer.info;
    const weights = new Float32Array(children);
    for (let i = 0; i < children; i++) {
      for (let j = 0; j < parents; j++) {
        if (above[j] > 0) weights[i] += tree.levels[l].coupling[i * parents + j] * above[j];
      }
    }
    above = weights;
  }
  return above;
}

export function forEachCell(
  grid: Grid,
  visit: (index: number, type: number, y: number, x: number) => void,
): void {
  for (let type = 0; type < grid.types; type++) {
    for (let y = 0; y < grid.height; y++) {
      for (let x = 0; x < grid.width; x++) {
        const index = grid.offset + type * grid.stride_type + y * grid.stride_y + x * grid.stride_x;
        visit(index, type, y, x);
      }
    }
  }
}

/** Bilinear, pixel centres aligned (torch's align_corners=False). */
export function enlarge(
  map: ArrayLike<number>,
  fromHeight: number,
  fromWidth: number,
  height: number,
  width: number,
): Float32Array {
  const out = new Float32Array(height * width);
  for (let y = 0; y < height; y++) {
    const sy = Math.max(0, ((y + 0.5) * fromHeight) / height - 0.5);
    const y0 = Math.min(Math.floor(sy), fromHeight - 1);
    const y1 = Math.min(y0 + 1, fromHeight - 1);
    for (let x = 0; x < width; x++) {
      const sx = Math.max(0, ((x + 0.5) * fromWidth) / width - 0.5);
      const x0 = Math.min(Math.floor(sx), fromWidth - 1);
      const x1 = Math.min(x0 + 1, fromWidth - 1);
      const [fy, fx] = [sy - y0, sx - x0];
      const top = map[y0 * fromWidth + x0] * (1 - fx) + map[y0 * fromWidth + x1] * fx;
      const bottom = map[y1 * fromWidth + x0] * (1 - fx) + map[y1 * fromWidth + x1] * fx;
      out[y * width + x] = top * (1 - fy) + bottom * fy;
    }
  }
  return out;
}

/** The trees of the images that are predicted as one class: which of them are the same. */
export interface ClassTrees {
  samples: number[];
  groups: Map<string, number[]>; // key of a tree -> the samples that have it
  trees: number;
  entropy: number; // bits
}

/** Equal for samples with the same tree; also of two runs' data, if their layers have the same codes. */
export function treeKey(run: RunData, sample: number, target: number, levels: Levels): string {
  const layer = run.layers[run.layers.length - 1];
  const { children, parents } = layer.info;
  const { index } = tableOf(layer, levels);
  const key = new Array<string>(children);
  for (let i = 0; i < children; i++) {
    const place =
      layer.columns === "all" ? (sample * children + i) * parents + target : sample * children + i;
    key[i] = String.fromCharCode(index[layer.codes[place]]);
  }
  return key.join("");
}

export function classTrees(run: RunData, target: number, levels: Levels): ClassTrees {
  const samples = run.predicted.flatMap((predicted, sample) =>
    predicted === target ? [sample] : [],
  );
  const groups = new Map<string, number[]>();
  for (const sample of samples) {
    const key = treeKey(run, sample, target, levels);
    const group = groups.get(key);
    if (group) group.push(sample);
    else groups.set(key, [sample]);
  }
  return {
    samples,
    groups,
    trees: groups.size,
    entropy: entropyBits([...groups.values()].map((group) => group.length)),
  };
}
