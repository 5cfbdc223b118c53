// Reads what the program put into the page.

import type { Blob as BlobRef, Dataset, Layer, Run } from "./schema";

/** The JSON of the page; `version` is the one that the caller reads. */
export function readData<Data extends { version: number }>(version: number): Data {
  const element = document.getElementById("report-data");
  if (!element?.textContent) throw new Error("this page holds no data");
  const data = JSON.parse(element.textContent) as Data;
  if (data.version !== version) {
    throw new Error(`data of version ${data.version}; this page reads ${version}`);
  }
  return data;
}

function bytesOfBase64(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function inflate(bytes: Uint8Array<ArrayBuffer>): Promise<ArrayBuffer> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

const blobs = new Map<number, Promise<ArrayBuffer>>();

function blobBytes(id: number): Promise<ArrayBuffer> {
  let bytes = blobs.get(id);
  if (!bytes) {
    const element = document.getElementById(`blob-${id}`);
    if (!element) throw new Error(`this page holds no blob ${id}`);
    bytes = inflate(bytesOfBase64(element.textContent!.trim()));
    element.textContent = ""; // the base64 is not needed again
    blobs.set(id, bytes);
  }
  return bytes;
}

export async function uint8Blob(ref: BlobRef): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await blobBytes(ref.blob));
}

export async function uint16Blob(ref: BlobRef): Promise<Uint16Array> {
  return new Uint16Array(await blobBytes(ref.blob));
}

/** A stack of equally large images, [N, C, H, W]; more channels than three show the first. */
export class Images {
  readonly count: number;
  readonly channels: number;
  readonly height: number;
  readonly width: number;

  constructor(
    readonly bytes: Uint8Array,
    shape: number[],
  ) {
    [this.count, this.channels, this.height, this.width] = shape;
  }

  /** The pixels of one image as RGBA. */
  rgba(place: number): ImageData {
    const plane = this.height * this.width;
    const first = place * this.channels * plane;
    const image = new ImageData(this.width, this.height);
    for (let i = 0; i < plane; i++) {
      for (let c = 0; c < 3; c++) {
        const channel = this.channels === 3 ? c : 0;
        image.data[4 * i + c] = this.bytes[first + channel * plane + i];
      }
      image.data[4 * i + 3] = 255;
    }
    return image;
  }

  /** The mean of some images. */
  mean(places: number[]): Images {
    const size = this.channels * this.height * this.width;
    const sum = new Float64Array(size);
    for (const place of places) {
      const first = place * size;
      for (let i = 0; i < size; i++) sum[i] += this.bytes[first + i];
    }
    const bytes = Uint8Array.from(sum, (value) => Math.round(value / Math.max(1, places.length)));
    return new Images(bytes, [1, this.channels, this.height, this.width]);
  }
}

export interface DatasetData {
  info: Dataset;
  images: Images;
  gallery: Images;
}

export interface LayerData {
  info: Layer;
  columns: "all" | "predicted" | "none";
  decode: number[];
  codes: Uint8Array; // [S, I, J] or [S, I]; empty for "none"
  activations: Uint8Array; // [S, I]
}

/** What the capsules of a layer contribute to the predicted class of each image. */
export interface Contributions {
  info: Layer;
  values: Float32Array; // [S, I]
  positive: number[]; // the sum of those that are for the answer
  evidence: number[];
  bias: number[];
}

/** A run's couplings and activations, unpacked. */
export interface RunData {
  info: Run;
  activations: Uint16Array; // [S, J]
  predicted: number[];
  contributions: Contributions | null;
  layers: LayerData[];
  saliency: { maps: Uint8Array; max: number[]; height: number; width: number } | null;
}

function once<Key, Value>(load: (key: Key) => Promise<Value>): (key: Key) => Promise<Value> {
  const loaded = new Map<Key, Promise<Value>>();
  return (key) => {
    if (!loaded.has(key)) loaded.set(key, load(key));
    return loaded.get(key)!;
  };
}

export const loadDataset = once(async (info: Dataset): Promise<DatasetData> => {
  const [images, gallery] = await Promise.all([uint8Blob(info.images), uint8Blob(info.gallery)]);
  return {
    info,
    images: new Images(images, info.images.shape),
    gallery: new Images(gallery, info.gallery.shape),
  };
});

/** Codes of contributions, as numbers. */
function contributionsOf(codes: Uint8Array, scale: number[]): Float32Array {
  const each = codes.length / scale.length;
  return Float32Array.from(codes, (code, k) => ((code - 128) / 127) * scale[Math.floor(k / each)]);
}

export const loadRun = once(async (info: Run): Promise<RunData> => {
  const { explorer } = info;
  const none = new Uint8Array(0);
  const layers = await Promise.all(
    explorer.layers.map(async (layer, l) => ({
      info: info.layers[l],
      columns: layer.columns,
      decode: layer.decode,
      codes: layer.couplings ? await uint8Blob(layer.couplings) : none,
      activations: layer.activations ? await uint8Blob(layer.activations) : none,
    })),
  );
  const maps = explorer.saliency;
  const parts = explorer.contributions;
  return {
    info,
    activations: await uint16Blob(explorer.activations),
    predicted: explorer.predicted,
    contributions: parts && {
      info: info.layers[parts.layer],
      values: contributionsOf(await uint8Blob(parts.values), parts.scale),
      positive: parts.positive,
      evidence: parts.evidence,
      bias: parts.bias,
    },
    layers,
    saliency: maps && {
      maps: await uint8Blob(maps),
      max: explorer.saliency_max,
      height: maps.shape[1],
      width: maps.shape[2],
    },
  };
});
