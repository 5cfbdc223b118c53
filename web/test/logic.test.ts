// Quantization, trees and saliency, on networks small enough to reason about.

import assert from "node:assert/strict";
import { test } from "node:test";
import type { LayerData, RunData } from "../src/data";
import { entropyBits, levelOf, levelTable, levelValue } from "../src/quantize";
import type { Grid, Layer, Run } from "../src/schema";
import { backtrack, classTrees, enlarge, saliencyOf, treeOf } from "../src/tree";
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

test("a tree follows only couplings above 1 / parents, from the class capsule down", () => {
  const below = layer(
    [
      [
        [0.9, 0.1],
        [0.2, 0.8],
      ],
    ],
    [[0.5, 0.5]],
  );
  const above = layer(
    [
      [
        [0.8, 0.2],
        [0.4, 0.6],
      ],
    ],
    [[0.9, 0.9]],
  );
  const tree = treeOf(run([below, above], [0], 2), [0], 0, "off");
  const { edges, reached } = backtrack(tree, "adaptive");
  assert.deepEqual([...reached[1]], [0]);
  assert.deepEqual(
    edges[0].map((edge) => [edge.child, edge.parent]),
    [[0, 0]],
  );
  assert.equal(backtrack(tree, 0.3).edges[1].length, 2);
  assert.equal(backtrack(tree, 0.95).edges[1].length, 0);
});

test("a coupling that equals the threshold does not pass it", () => {
  const only = layer([[[0.5, 0.5]]], [[1]]);
  const tree = treeOf(run([only], [0], 2), [0], 0, 3);
  assert.equal(tree.levels[0].coupling[0], 0.5);
  assert.equal(backtrack(tree, "adaptive").edges[0].length, 0);
});

test("a capsule without an in-degree has no connection upwards", () => {
  const below = layer(
    [
      [
        [0.9, 0.1],
        [0.9, 0.1],
      ],
    ],
    [[1, 1]],
  );
  const above = layer(
    [
      [
        [0.9, 0.1],
        [0.9, 0.1],
      ],
    ],
    [[1, 1]],
  );
  const { reached } = backtrack(treeOf(run([below, above], [0], 2), [0], 0, "off"), "adaptive");
  assert.deepEqual([...reached[1]], [0]);
});

test("saliency is the mean over types of activation times coupling", () => {
  const grid: Grid = {
    offset: 0,
    types: 2,
    height: 1,
    width: 2,
    stride_type: 2,
    stride_y: 2,
    stride_x: 1,
  };
  const couplings = [
    [
      [1, 0],
      [0, 1],
      [0.6, 0.4],
      [0, 1],
    ],
  ];
  const only = layer(couplings, [[1, 1, 0.2, 1]], [grid]);
  const map = saliencyOf(treeOf(run([only], [0], 2), [0], 0, "off"), 1, 2)!;
  assert.ok(Math.abs(map.values[0] - (1 + 0.6 * 0.2) / 2) < 1e-3);
  assert.equal(map.values[1], 0);
});

test("capsules without a place have no saliency map", () => {
  assert.equal(
    saliencyOf(treeOf(run([layer([[[1, 0]]], [[1]])], [0], 2), [0], 0, "off"), 4, 4),
    null,
  );
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
  assert.deepEqual(classTrees(data, 0, 11).groupOf.get(0), [0, 1]);
  assert.deepEqual(classTrees(data, 0, 11).samples, [0, 1, 2]);
});
