// Runs every NAME.onnx of a folder with ONNX Runtime and compares with the answers in NAME.json:
//   node test/onnx.mjs FOLDER
// Exit code 1 if lengths, poses or couplings are not within 1e-5 (and within 1e-3 of the largest
// one), or if a level differs without a tie. A tie is a coupling within 1e-5 of the edge between
// the two levels, before it is rounded. Ties are counted, and their images are not compared further.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import ort from "onnxruntime-node";

const folder = process.argv[2];
const cases = readdirSync(folder)
  .filter((name) => name.endsWith(".onnx"))
  .sort();
let faults = cases.length === 0 ? 1 : 0;

// The largest difference between two arrays, images with a tie left out; NaN if they cannot agree.
const largestDifference = (theirs, ours, tied) => {
  if (theirs.length !== ours.length || ours.length === 0) return NaN;
  const each = ours.length / tied.length;
  let difference = 0;
  let size = 0;
  for (let i = 0; i < ours.length; ++i) {
    if (tied[Math.floor(i / each)]) continue;
    const apart = Math.abs(theirs[i] - ours[i]);
    if (!(apart <= difference)) difference = apart; // NaN counts
    size = Math.max(size, Math.abs(ours[i]));
  }
  return size > 0 && difference <= 1e-3 * size ? difference : NaN;
};

for (const name of cases) {
  const expected = JSON.parse(readFileSync(join(folder, name.replace(/onnx$/, "json")), "utf8"));
  const session = await ort.InferenceSession.create(join(folder, name), { intraOpNumThreads: 1 });
  const images = new ort.Tensor("float32", Float32Array.from(expected.images), expected.shape);
  const answer = await session.run({ images });
  const tied = new Array(expected.shape[0]).fill(false);
  const found = {};
  let ties = 0;
  let levels = 0;
  for (const { name: layer, shape, rounded, values, exact } of expected.couplings) {
    const theirs = answer[layer];
    if (theirs.dims.join() !== shape.join()) found[layer] = NaN;
    if (!rounded) {
      found[layer] = largestDifference(theirs.data, values, tied);
      continue;
    }
    const each = values.length / tied.length;
    const before = [...tied];
    values.forEach((value, i) => {
      const image = Math.floor(i / each);
      if (before[image] || Math.abs(value - theirs.data[i]) <= 1e-6) return;
      if (exact && Math.abs(exact[i] - (value + theirs.data[i]) / 2) <= 1e-5) {
        ++ties;
        tied[image] = true;
      } else ++levels;
    });
  }
  found.lengths = largestDifference(answer.lengths.data, expected.lengths, tied);
  found.poses = largestDifference(answer.poses.data, expected.poses, tied);
  const good = Object.values(found).every((difference) => difference <= 1e-5) && levels === 0;
  if (!good) ++faults;
  const text = Object.entries(found).map(([key, value]) => `${key} ${value.toPrecision(2)}`);
  console.log(
    `${good ? "same" : "DIFFERENT"} ${name}: ${text.join(", ")}; ${ties} ties, ${levels} other levels`,
  );
}
process.exitCode = faults === 0 ? 0 : 1;
