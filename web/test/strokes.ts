// A network that is made here, for tests without the program, and pictures for it.

/** A safetensors file of float32 tensors. */
export function safetensors(
  tensors: Record<string, { shape: number[]; values: number[] }>,
  metadata: Record<string, string>,
): Uint8Array {
  const header: Record<string, unknown> = { __metadata__: metadata };
  const values: number[] = [];
  for (const [name, tensor] of Object.entries(tensors)) {
    const begin = 4 * values.length;
    values.push(...tensor.values);
    header[name] = { dtype: "F32", shape: tensor.shape, data_offsets: [begin, 4 * values.length] };
  }
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([length, text, Buffer.from(new Float32Array(values).buffer)]);
}

export const SIDE = 28;
const KERNEL = 12;

/**
 * Tells upright strokes from level ones: two types of capsules on a map of 3 x 3 places, each with a
 * filter for strokes through the middle of its window, vote for a class of their own.
 */
export function strokes(classes = ["upright", "level"]): Uint8Array {
  const stroke = (at: number) => (at >= 4 && at < 8 ? 0.04 : -0.02);
  const upright: number[] = [];
  const level: number[] = [];
  for (let y = 0; y < KERNEL; y++)
    for (let x = 0; x < KERNEL; x++) {
      upright.push(stroke(x));
      level.push(stroke(y));
    }
  const none = upright.map(() => 0);
  // Children in the order type, row, column; W_ij [I, J, D, d] is one where type and class agree.
  const votes = Array.from({ length: 18 }, (_, i) =>
    [0, 1].flatMap((j) => ((i < 9 ? 0 : 1) === j ? [1, 0, 0, 1] : [0, 0, 0, 0])),
  ).flat();
  const graph = {
    version: 1,
    network: "strokes",
    input: {
      channels: 1,
      height: SIDE,
      width: SIDE,
      resize: 0,
      standardize: false,
      mean: [0],
      std: [1],
    },
    classes,
    levels: [11],
    level_form: "uniform",
    nodes: [
      {
        op: "convolution",
        name: "filters",
        inputs: ["images"],
        attributes: { stride_y: 8, stride_x: 8, padding_y: 0, padding_x: 0, groups: 1 },
        tensors: { weight: "filters.weight" },
      },
      {
        op: "relu",
        name: "relu",
        inputs: ["filters"],
        attributes: { slope: 0 },
        tensors: {},
      },
      {
        op: "capsules",
        name: "primary",
        inputs: ["relu"],
        attributes: { types: 2, dim: 2, epsilon: 1e-7, order: "type-first", form: "norm" },
        tensors: {},
      },
      {
        op: "dynamic_routing",
        name: "class",
        inputs: ["primary"],
        attributes: { iterations: 3, bias_every_iteration: 0, epsilon: 1e-7, shared_over: 1 },
        tensors: { weight: "class.weight" },
      },
      {
        op: "lengths",
        name: "lengths",
        inputs: ["class"],
        attributes: { epsilon: 1e-7 },
        tensors: {},
      },
    ],
  };
  return safetensors(
    {
      "filters.weight": {
        shape: [4, 1, KERNEL, KERNEL],
        values: [...upright, ...none, ...level, ...none],
      },
      "class.weight": { shape: [18, 2, 2, 2], values: votes },
    },
    { graph: JSON.stringify(graph) },
  );
}

/** A picture with one stroke, four pixels wide. */
export function stroke(upright: boolean, ink = 255): Uint8Array {
  const pixels = new Uint8Array(SIDE * SIDE).fill(255 - ink);
  for (let along = 3; along < 25; along++)
    for (let across = 12; across < 16; across++)
      pixels[upright ? along * SIDE + across : across * SIDE + along] = ink;
  return pixels;
}

export const grey = (pixels: Uint8Array, side = SIDE) =>
  ({ pixels, height: side, width: side, channels: 1 }) as const;
