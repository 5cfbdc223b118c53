// Runs every NAME.onnx of a folder with ONNX Runtime and compares with the answers in NAME.json:
//   node test/onnx.mjs FOLDER
// Exit code 1 if lengths, poses or couplings are not within 1e-5, or if a level differs.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import ort from "onnxruntime-node";

const folder = process.argv[2];
const cases = readdirSync(folder)
  .filter((name) => name.endsWith(".onnx"))
  .sort();
let faults = cases.length === 0 ? 1 : 0;

const largestDifference = (ours, theirs) => {
  if (ours.length !== theirs.length) return NaN;
  let largest = 0;
  for (let i = 0; i < ours.length; ++i) {
    const difference = Math.abs(ours[i] - theirs[i]);
    if (!(difference <= largest)) largest = difference; // NaN counts
  }
  return largest;
};

for (const name of cases) {
  const expected = JSON.parse(readFileSync(join(folder, name.replace(/onnx$/, "json")), "utf8"));
  const session = await ort.InferenceSession.create(join(folder, name), { intraOpNumThreads: 1 });
  const images = new ort.Tensor("float32", Float32Array.from(expected.images), expected.shape);
  const answer = await session.run({ images });
  const found = {
    lengths: largestDifference(answer.lengths.data, expected.lengths),
    poses: largestDifference(answer.poses.data, expected.poses),
    couplings: 0,
  };
  let levels = 0;
  for (const [layer, { shape, rounded, values }] of Object.entries(expected.couplings)) {
    const ours = answer[layer];
    if (ours.dims.join() !== shape.join()) found.couplings = NaN;
    if (rounded)
      levels += values.filter((value, i) => !(Math.abs(value - ours.data[i]) <= 1e-6)).length;
    else found.couplings = Math.max(found.couplings, largestDifference(ours.data, values));
  }
  const good = Object.values(found).every((difference) => difference <= 1e-5) && levels === 0;
  if (!good) ++faults;
  const text = Object.entries(found).map(([key, value]) => `${key} ${value.toPrecision(2)}`);
  console.log(
    `${good ? "same" : "DIFFERENT"} ${name}: ${text.join(", ")}, ${levels} levels differ`,
  );
}
process.exitCode = faults === 0 ? 0 : 1;
