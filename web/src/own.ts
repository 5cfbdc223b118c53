// Pictures of one's own in the report: what the networks in it answer, as data of one image.

import type { Contributions, DatasetData, LayerData, RunData } from "./data";
import { uint8Blob } from "./data";
import type { Answer, Picture } from "./network";
import { Network } from "./network";
import { inputOf } from "./picture";
import { levelOf } from "./quantize";
import type { Layer, Report, Run } from "./schema";
import { positiveSum } from "./tree";

const opened = new Map<Run, Promise<Network>>();

/** A run's network; null if it is not in the report. */
export async function networkOf({ module }: Report, run: Run): Promise<Network | null> {
  const { network } = run;
  if (!module || !network) return null;
  const open = async () => Network.open(await uint8Blob(module), await uint8Blob(network));
  if (!opened.has(run)) opened.set(run, open());
  return opened.get(run)!;
}

/** Codes of couplings, as remcaps/report/html_report_couplings.cpp makes them. */
function codesOf(layer: Layer, plain: Float32Array, rounded: Float32Array): LayerData {
  const { levels, form } = layer;
  if (levels === 0) {
    const decode = Array.from({ length: 256 }, (_, code) => code / 255);
    const codes = Uint8Array.from(plain, (value) =>
      Math.round(255 * Math.max(0, Math.min(1, value))),
    );
    return { info: layer, columns: "all", decode, codes, activations: new Uint8Array(0) };
  }
  const each = Math.floor(256 / levels);
  // Edges between levels: a coupling on an edge belongs to the level below.
  const low = (level: number) =>
    form === "uniform" ? (level - 0.5) / (levels - 1) : level / levels;
  const width = 1 / (form === "uniform" ? levels - 1 : levels);
  const decode = Array.from({ length: levels * each }, (_, code) => {
    const value = low(Math.floor(code / each)) + (((code % each) + 0.5) / each) * width;
    return Math.min(1, Math.max(0, value));
  });
  const codes = Uint8Array.from(plain, (value, k) => {
    const level = levelOf(rounded[k], levels, form);
    const step = Math.floor(((value - low(level)) / width) * each);
    return level * each + Math.min(each - 1, Math.max(0, step));
  });
  return { info: layer, columns: "all", decode, codes, activations: new Uint8Array(0) };
}

function contributionsOf(layer: Layer, { contributions, evidence, bias }: Answer): Contributions {
  return {
    info: layer,
    values: contributions,
    positive: [positiveSum(contributions)],
    evidence: [evidence],
    bias: [bias],
  };
}

/** What a network answers for a picture, as the data of a run with this image alone. */
export function answerAsRun(info: Run, network: Network, picture: Picture): RunData {
  // The explorer shows lengths with plain couplings, and everything else with rounded ones.
  const plain = network.answer(picture, { quantize: false });
  const rounded = network.answer(picture);
  const none = new Uint8Array(0);
  return {
    info,
    activations: Uint16Array.from(plain.lengths, (length) =>
      Math.round(65535 * Math.min(1, length)),
    ),
    predicted: [rounded.predicted],
    contributions: contributionsOf(info.layers[network.info.contribution_layer], rounded),
    layers: info.layers.map((layer, l) => {
      const lengths = plain.childLengths[l];
      if (lengths === null)
        return { info: layer, columns: "none", decode: [], codes: none, activations: none };
      const activations = Uint8Array.from(lengths, (length) =>
        Math.round(255 * Math.min(1, length)),
      );
      return { ...codesOf(layer, plain.couplings[l], rounded.couplings[l]), activations };
    }),
    saliency: null,
  };
}

/** A data set of this picture alone, as the network sees it. */
export function pictureAsDataset(
  dataset: DatasetData,
  network: Network,
  picture: Picture,
  name: string,
): DatasetData {
  return {
    info: { ...dataset.info, indices: [0], labels: [], names: [name] },
    images: inputOf(picture, network.info),
    gallery: dataset.gallery,
  };
}
