// Networks in the page: the runtime of remcaps as a WebAssembly module (web/runtime/door.cpp).

/** What the module exports. Pointers and handles are numbers. */
interface Exports {
  memory: WebAssembly.Memory;
  _initialize(): void;
  error(): number;
  allocate(bytes: number): number;
  release(memory: number): void;
  open(bytes: number, size: number): number;
  describe(network: number): number;
  answer(
    network: number,
    pixels: number,
    height: number,
    width: number,
    channels: number,
    invert: number,
    quantize: number,
  ): void;
  lengths(network: number): number;
  couplings(network: number, layer: number): number;
  child_lengths(network: number, layer: number): number;
  contributions(network: number): number;
  evidence(network: number): number;
  tree_hash(network: number): number;
}

/** Bytes [height, width, channels], 1 (grey) or 3 (colour) channels. */
export interface Picture {
  pixels: Uint8Array;
  height: number;
  width: number;
  channels: 1 | 3;
}

export interface RoutingLayer {
  name: string;
  positions: number; // 1, or those of a convolutional layer
  children: number;
  parents: number;
  levels: number; // of its quantizer; 0: it has none
}

export interface NetworkInfo {
  network: string;
  channels: number;
  height: number;
  width: number;
  classes: string[];
  form: "uniform" | "bins";
  resize: number; // pictures are stretched to so many pixels, then cropped; 0: stretched to the input
  contribution_layer: number; // place in layers: contributions are those of its children
  contributing: number; // how many children that is
  layers: RoutingLayer[];
}

/** What a network says of a picture. */
export interface Answer {
  lengths: Float32Array; // of the class capsules
  predicted: number; // the longest of them
  couplings: Float32Array[]; // per routing layer, [P, I, J]
  childLengths: (Float32Array | null)[]; // per routing layer, [I]; null if it is convolutional
  contributions: Float32Array; // to the evidence for the predicted class, [I]
  evidence: number; // the sum of contributions and bias
  bias: number;
  treeHash: string; // equal for pictures of a class with the same parse tree; "": not quantized
}

/** A network that `remcaps export` has written. */
export class Network {
  readonly info: NetworkInfo;
  private readonly exports: Exports;
  private readonly handle: number;

  private constructor(instance: WebAssembly.Instance, file: Uint8Array) {
    this.exports = instance.exports as unknown as Exports;
    this.exports._initialize();
    this.handle = this.withBytes(file, (bytes) => this.exports.open(bytes, file.length));
    this.info = JSON.parse(this.call(() => this.text(this.exports.describe(this.handle))));
  }

  /** Each network has a module of its own: an error in one cannot damage another. */
  static async open(module: BufferSource, file: Uint8Array): Promise<Network> {
    const { instance } = await WebAssembly.instantiate(module, {});
    return new Network(instance, file);
  }

  answer(picture: Picture, { invert = false, quantize = true } = {}): Answer {
    const { pixels, height, width, channels } = picture;
    const { layers, classes, contributing } = this.info;
    if (pixels.length !== height * width * channels) {
      throw new Error(`${pixels.length} bytes; expected ${height} x ${width} x ${channels}`);
    }
    this.withBytes(pixels, (bytes) =>
      this.exports.answer(
        this.handle,
        bytes,
        height,
        width,
        channels,
        Number(invert),
        Number(quantize),
      ),
    );
    return this.call(() => {
      const lengths = this.floats(this.exports.lengths(this.handle), classes.length);
      const [evidence, bias] = this.floats(this.exports.evidence(this.handle), 2);
      return {
        lengths,
        predicted: lengths.indexOf(Math.max(...lengths)),
        couplings: layers.map(({ positions, children, parents }, l) =>
          this.floats(this.exports.couplings(this.handle, l), positions * children * parents),
        ),
        childLengths: layers.map(({ children }, l) => {
          const at = this.exports.child_lengths(this.handle, l);
          return at === 0 ? null : this.floats(at, children);
        }),
        contributions: this.floats(this.exports.contributions(this.handle), contributing),
        evidence,
        bias,
        treeHash:
          layers[layers.length - 1].levels === 0 || !quantize
            ? ""
            : this.text(this.exports.tree_hash(this.handle)),
      };
    });
  }

  private withBytes<Result>(bytes: Uint8Array, use: (at: number) => Result): Result {
    const at = this.exports.allocate(bytes.length);
    if (at === 0) throw new Error(`no memory for ${bytes.length} bytes`);
    new Uint8Array(this.exports.memory.buffer).set(bytes, at);
    const result = this.call(() => use(at));
    this.exports.release(at);
    return result;
  }

  /** The module stops at an error; what it has left then says why. */
  private call<Result>(work: () => Result): Result {
    try {
      return work();
    } catch (error) {
      if (!(error instanceof WebAssembly.RuntimeError)) throw error;
      throw new Error(this.text(this.exports.error()) || error.message);
    }
  }

  // Copies, since the next answer overwrites what the module holds.
  private floats(at: number, count: number): Float32Array {
    return new Float32Array(this.exports.memory.buffer, at, count).slice();
  }

  private text(at: number): string {
    const bytes = new Uint8Array(this.exports.memory.buffer, at);
    return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
  }
}
