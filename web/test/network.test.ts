// The WebAssembly module, on a network that is made here.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Network } from "../src/network";
import { SIDE, grey, safetensors, stroke, strokes } from "./strokes";

const module = readFileSync(join(process.env.REMCAPS_TEMPLATE!, "..", "runtime.wasm"));

test("the module asks for nothing", () => {
  assert.deepEqual(WebAssembly.Module.imports(new WebAssembly.Module(module)), []);
});

test("a stroke gives its class, its couplings and its tree", async () => {
  const network = await Network.open(module, strokes());
  assert.deepEqual(network.info.classes, ["upright", "level"]);
  const upright = network.answer(grey(stroke(true)));
  const level = network.answer(grey(stroke(false)));
  assert.equal(upright.predicted, 0);
  assert.equal(level.predicted, 1);
  assert.ok(upright.lengths[0] > 2 * upright.lengths[1], String(upright.lengths));
  const [couplings] = upright.couplings;
  assert.equal(couplings.length, 18 * 2);
  // Quantized, and strongest where the stroke is: the middle column of the first type.
  for (const coupling of couplings)
    assert.ok(Math.abs(10 * coupling - Math.round(10 * coupling)) < 1e-5);
  assert.ok(couplings[2 * 4] > couplings[2 * 3]);
  assert.ok(upright.childLengths[0]![4] > upright.childLengths[0]![3]);
  // The other type does not see it.
  assert.ok(upright.childLengths[0]![13] < 1e-6);
  assert.match(upright.treeHash, /^[0-9a-f]{32}$/);
  assert.equal(network.answer(grey(stroke(true))).treeHash, upright.treeHash);
  assert.notEqual(level.treeHash, upright.treeHash);
});

test("pictures of any size, and negatives", async () => {
  const network = await Network.open(module, strokes());
  const { lengths } = network.answer(grey(stroke(false)));
  assert.deepEqual(network.answer(grey(stroke(false, 0)), { invert: true }).lengths, lengths);
  const large = new Uint8Array(56 * 56).map((_, p) => {
    const [y, x] = [Math.floor(p / 56), p % 56];
    return stroke(false)[Math.floor(y / 2) * SIDE + Math.floor(x / 2)];
  });
  assert.equal(network.answer(grey(large, 56)).predicted, 1);
});

test("an error says what is wrong", async () => {
  const file = strokes();
  await assert.rejects(Network.open(module, file.subarray(0, 5)), /5 bytes; a safetensors file/);
  await assert.rejects(Network.open(module, safetensors({}, {})), /has no graph/);
  await assert.rejects(
    Network.open(module, safetensors({}, { graph: "{" })),
    /the network|parse_error/,
  );
});
