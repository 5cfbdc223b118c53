// The data a report carries, as `remcaps report` writes it (remcaps/report/html_report.cpp).
//
// Numbers that a person may want to read stand in the JSON; bytes stand in blobs, each a
// <script type="application/octet-stream" id="blob-N"> that holds base64 of zlib-compressed bytes.

export const SCHEMA_VERSION = 1;

/** Bytes of a row-major array, `shape[0]` slowest; uint16 is little-endian. */
export interface Blob {
  blob: number;
  type: "uint8" | "uint16";
  shape: number[];
}

export interface Report {
  version: number;
  generator: string; // "remcaps 0.1.0"
  title: string;
  /** The runtime as WebAssembly, for pictures that are dropped on the page; null: no run has a network. */
  module: Blob | null;
  datasets: Dataset[];
  runs: Run[];
}

/** Images that runs share: two runs with the same data set can be compared image by image. */
export interface Dataset {
  name: string;
  split: string;
  samples: number; // images the statistics are over
  classes: string[];
  /** The explorer's images: places in the split, true classes, and pixels [S, C, H, W]. */
  indices: number[];
  labels: number[];
  /** File names of own pictures; empty for other data sets. */
  names: string[];
  images: Blob;
  /** Further images that dictionaries show, [G, C, H, W]. */
  gallery: Blob;
}

export interface Run {
  name: string; // short, unique in the report: "dr-capsnet-rem, seed 42"
  recipe: string;
  folder: string;
  model: string;
  dataset: number; // place in Report.datasets
  seed: number;
  checkpoint: string; // "best", "last" or "epoch-0012" of a run, "exported", or a file's name
  epoch: number; // of the checkpoint, from 0
  pruning: string; // the strategy's name, "none" if nothing is pruned

  accuracy: number; // 0..1, all images, couplings as they are
  accuracy_quantized: number;
  loss: number;
  entropy: number; // bits, mean over classes
  entropy_std: number; // over classes
  entropy_per_class: number[];
  keys_per_class: number[];
  median_keys: number;
  varying_per_class: number[]; // couplings in which a class's trees differ
  key_couplings: number; // of how many
  samples_per_class: number[]; // by predicted class
  /** How many capsules an answer is made of, means over images; null for a class without images. */
  effective_parts: {
    half: number; // the fewest that carry half of the positive contributions
    spread: number; // exp of the entropy of their shares
    half_per_class: (number | null)[];
    capsules: number;
  };
  parameters: number;
  parameters_nonzero: number;
  sparsity: number; // 0..1, published definition
  confusion: number[][]; // [true][predicted], couplings as they are

  /** Options that differ from the recipe of this name. */
  changed: Record<string, string>;
  /** What the paper reports for this network, data set and arm; null if the recipe was changed. */
  paper: PaperNumbers | null;
  metrics: Metrics;
  /** The most frequent trees of each class, most frequent first. */
  dictionary: Tree[][];
  /** Unquantized couplings to the predicted class over all images: counts[class][bin], equal bins of [0, 1]. */
  histogram: number[][];
  /** Height and width of the images that the network sees. */
  input: [number, number];
  layers: Layer[];
  explorer: Explorer;
  /** The network, as `remcaps export` writes it; null: it is not in the report, and why. */
  network: Blob | null;
  no_network: string;
}

export interface PaperNumbers {
  arm: string; // "Vanilla", "Q" or "REM"
  source: string; // "table 1"
  accuracy?: [number, number | null]; // percent, +- over seeds
  accuracy_quantized?: [number, number | null];
  entropy?: [number, number | null];
  sparsity?: number; // percent
}

/** metrics.csv, column by column; null if an epoch did not measure. */
export interface Metrics {
  columns: Record<string, (number | null)[]>;
}

export interface Tree {
  count: number;
  mean: number; // place of the group's mean image in Dataset.gallery
  images: number[]; // places in Dataset.gallery
}

/** A routing layer. */
export interface Layer {
  name: string;
  children: number;
  parents: number;
  /** K and form it was measured with; 0: not quantized. */
  levels: number;
  form: "uniform" | "bins";
  entropy: number | null;
  /** Maps the children lie on; the index of (type, y, x) is offset + type * st + y * sy + x * sx. */
  grids: Grid[];
}

export interface Grid {
  offset: number;
  types: number;
  height: number;
  width: number;
  stride_type: number;
  stride_y: number;
  stride_x: number;
  /** What the capsules of a place see; null if that is not known. */
  field: { y: FieldAxis; x: FieldAxis } | null;
}

/** Place n of a map sees `size` pixels of the network's input around the centre first + n * step. */
export interface FieldAxis {
  first: number;
  step: number;
  size: number;
}

export interface Explorer {
  /** ||v_j|| * 65535 of each image, [S, J], couplings as they are. */
  activations: Blob;
  /** Predicted class with quantized couplings, of each image. */
  predicted: number[];
  /** Null if they would be too large. */
  contributions: ExplorerContributions | null;
  /** One per routing layer. */
  layers: ExplorerLayer[];
  /**
   * If the couplings above give no saliency map but the network has one: maps made by the program
   * for the predicted class, [S, H, W], each scaled to its own maximum.
   */
  saliency: Blob | null;
  saliency_max: number[];
}

/** What each capsule of a layer contributes to the evidence for the predicted class. */
export interface ExplorerContributions {
  layer: number; // place in Run.layers: the capsules are its children
  /** A code c of image s stands for (c - 128) / 127 * scale[s], [S, I]. */
  values: Blob;
  scale: number[];
  positive: number[]; // the sum of all that are for the answer, which codes give only roughly
  evidence: number[]; // the contributions of capsules and biases together
  bias: number[];
}

export interface ExplorerLayer {
  /**
   * Couplings as codes: [S, I, J] ("all"), or [S, I] of the predicted class ("predicted"); "none"
   * if they would be too large. A code stands for decode[code]; codes never straddle a level of
   * the K the run was measured with, so that K is exact and every other K is close.
   */
  columns: "all" | "predicted" | "none";
  couplings: Blob | null;
  decode: number[];
  /** ||u_i|| * 255, [S, I]; null if the couplings are. */
  activations: Blob | null;
}
