// Parse trees, saliency maps and tile layouts against tests/explain/trees.json, which also tests the
// program (tests/explain/shared_trees_test.cpp): both must show the same.

import assert from "node:assert/strict";
import { test } from "node:test";
import shared from "../../tests/explain/trees.json";
import type { LayerData, RunData } from "../src/data";
import type { Grid, Run } from "../src/schema";
import { MOST_NODES, cellSide, tileGrids, tilesPerRow } from "../src/tiles";
import { backtrack, inDegree, saliencyOf, thresholdOf, treeOf } from "../src/tree";

type Case = (typeof shared.cases)[number];

/** A run of one image; its codes stand for exactly the couplings of the file. */
function runOf({ activations, couplings, grids, root }: Case): RunData {
  const layers = couplings.map((matrix, l): LayerData => {
    const decode = [...new Set(matrix.flat())];
    return {
      info: {
        name: "layer",
        children: matrix.length,
        parents: matrix[0].length,
        grids: grids[l] as Grid[],
        levels: 0,
        form: "uniform",
        entropy: null,
      },
      columns: "all",
      decode,
      codes: Uint8Array.from(matrix.flat(), (value) => decode.indexOf(value)),
      activations: Uint8Array.from(activations[l], (value) => Math.round(255 * value)),
    };
  });
  const classes = activations[activations.length - 1].length;
  return {
    info: { entropy_per_class: new Array(classes).fill(0) } as unknown as Run,
    activations: new Uint16Array(classes),
    predicted: [root],
    layers,
    contributions: null,
    saliency: null,
  };
}

for (const each of shared.cases) {
  test(`${each.name}: the program's tree and saliency map`, () => {
    const tree = treeOf(runOf(each), [0], each.root, "off");
    const threshold = each.threshold ?? "adaptive";
    const { edges, reached } = backtrack(tree, threshold);
    const order = (a: number[], b: number[]) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
    assert.deepEqual(
      edges.flatMap((own, l) => own.map(({ child, parent }) => [l, child, parent])).sort(order),
      [...each.edges].sort(order),
    );
    tree.levels.forEach((level, l) => {
      assert.deepEqual(
        [...reached[l]].sort((a, b) => a - b),
        each.in_tree[l],
      );
      const limit = thresholdOf(level, threshold);
      each.in_degree[l + 1].forEach((degree, j) => assert.equal(inDegree(level, j, limit), degree));
    });
    const map = saliencyOf(tree, each.size[0], each.size[1], [each.size[0], each.size[1]]);
    assert.equal(map === null, each.saliency === null);
    each.saliency?.forEach((value, p) => assert.ok(Math.abs(value - map!.values[p]) < 1e-6));
  });
}

test("large layers are laid out as the program does", () => {
  assert.equal(MOST_NODES, shared.most_nodes);
  for (const { children, grids, have_places, tiles_per_row } of shared.layouts) {
    const own = tileGrids(children, grids as Grid[]);
    assert.equal(own === grids, have_places);
    assert.deepEqual(own.map(tilesPerRow), tiles_per_row);
  }
  for (const [activation, largest, side] of shared.cell_sides) {
    assert.ok(Math.abs(cellSide(activation, largest) - side) < 1e-12);
  }
});
