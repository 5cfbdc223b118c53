// Quantization and dictionaries; shared.test.ts tests trees and saliency maps.

import assert from "node:assert/strict";
import { test } from "node:test";
import type { LayerData, RunData } from "../src/data";
import { entropyBits, levelOf, levelTable, levelValue } from "../src/quantize";
import type { Grid, Layer, Run } from "../src/schema";
import { classTrees, enlarge, treeKey } from "../src/tree";
import { decodeTable } from "./synthetic";

const layerInfo = (children: number, parents: number, grids: Grid[] = []): Layer => ({
  name: "class",
  children,
  parents,
  grids,
  levels: 11,
  form: "uniform",
  entropy: null,
});

/** A layer whose couplings are given as numbers, [S][I][J]. */
function layer(couplings: number[][][], activations: number[][], grids: Grid[] = []): LayerData {
  const decode = Array.from({ length: 256 }, (_, code) => code / 255);
  return {
    info: layerInfo(couplings[0].length, couplings[0][0].length, grids),
    columns: "all",
    decode,
    codes: Uint8Array.from(couplings.flat(2), (value) => Math.round(255 * value)),
    activations: Uint8Array.from(activations.flat(), (value) => Math.round(255 * value)),
  };
}

function run(layers: LayerData[], predicted: number[], classes: number): RunData {
  return {
    info: { entropy_per_class: new Array(classes).fill(0) } as unknown as Run,
    activations: new Uint16Array(predicted.length * classes).fill(32768),
    predicted,
    layers,
    contributions: null,
    saliency: null,
  };
}

test("a coupling goes to the nearest of K levels, ties down", () => {
  assert.equal(levelOf(0.1, 11, "uniform"), 1);
  assert.equal(levelOf(0.15, 11, "uniform"), 1);
  assert.equal(levelOf(0.1501, 11, "uniform"), 2);
  assert.equal(levelOf(1.2, 11, "uniform"), 10);
  assert.equal(levelOf(-0.2, 11, "uniform"), 0);
  assert.equal(levelValue(3, 11, "uniform"), 0.3);
});

test("bins of equal width are right-closed and stand for their middle", () => {
  assert.equal(levelOf(0, 128, "bins"), 0);
  assert.equal(levelOf(1 / 128, 128, "bins"), 0);
  assert.equal(levelOf(1.01 / 128, 128, "bins"), 1);
  assert.equal(levelOf(1, 128, "bins"), 127);
  assert.equal(levelValue(0, 128, "bins"), 0.00390625);
});

test("codes made for K = 11 fall on the same level as the coupling they stand for", () => {
  const decode = decodeTable(11);
  const { index } = levelTable(layerInfo(4, 2), decode, "run");
  index.forEach((level, code) => assert.equal(level, Math.floor(code / 23)));
});

test("entropy is zero for one tree and log2 n for n equally frequent ones", () => {
  assert.equal(entropyBits([17]), 0);
  assert.ok(Math.abs(entropyBits([5, 5, 5, 5]) - 2) < 1e-12);
  assert.equal(entropyBits([]), 0);
});

test("enlarging aligns pixel centres and keeps constants", () => {
  assert.deepEqual([...enlarge([0, 1], 1, 2, 1, 4)], [0, 0.25, 0.75, 1]);
  assert.ok(enlarge([3, 3, 3, 3], 2, 2, 7, 5).every((value) => Math.abs(value - 3) < 1e-6));
});

test("fewer levels merge trees", () => {
  const images = [[[0.3, 0.7]], [[0.34, 0.66]], [[0.9, 0.1]], [[0.1, 0.9]]];
  const only = layer(images, [[1], [1], [1], [1]]);
  const data = run([only], [0, 0, 0, 1], 2);
  assert.equal(classTrees(data, 0, 32).trees, 3);
  assert.equal(classTrees(data, 0, 11).trees, 2);
  assert.deepEqual(classTrees(data, 0, 11).groups.get(treeKey(data, 0, 0, 11)), [0, 1]);
  assert.deepEqual(classTrees(data, 0, 11).samples, [0, 1, 2]);
});
