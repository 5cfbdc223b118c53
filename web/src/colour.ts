// Colours: one per run, and perceptually uniform maps for numbers.

import { interpolateBlues, interpolateMagma, interpolateRgb, interpolateViridis, rgb } from "d3";

const RUN_COLOURS = ["#4269d0", "#e07b39", "#3ca951", "#a463f2", "#9c6b4e", "#d6538f", "#2fa4a0"];

export const runColour = (run: number): string => RUN_COLOURS[run % RUN_COLOURS.length];

/** 256 colours as RGB triples. */
function table(interpolate: (t: number) => string): Uint8ClampedArray {
  const colours = new Uint8ClampedArray(3 * 256);
  for (let i = 0; i < 256; i++) {
    const { r, g, b } = rgb(interpolate(i / 255));
    colours.set([r, g, b], 3 * i);
  }
  return colours;
}

export const MAGMA = table(interpolateMagma);

const darkGround = matchMedia("(prefers-color-scheme: dark)");

export const isDark = (): boolean => darkGround.matches;

export const onThemeChange = (listener: () => void): void =>
  darkGround.addEventListener("change", listener);

/**
 * Couplings and activations, 0..1: the larger, the more it stands out from the page. The scale goes
 * by the square root, since most couplings are small.
 */
export function strengthColour(value: number): string {
  const place = Math.sqrt(Math.min(1, Math.max(0, value)));
  return interpolateViridis(isDark() ? place : 1 - place);
}

const darkBlues = interpolateRgb("#1b2531", "#8fb0ff");

/** Shares, 0..1, from the page's own lightness to a strong blue; by the square root. */
export function shareColour(share: number): string {
  return (isDark() ? darkBlues : interpolateBlues)(Math.sqrt(share));
}

/** The colour of text on shareColour(). */
export const shareInk = (share: number): string => (share > 0.3 !== isDark() ? "white" : "#11161d");

export const saliencyColour = interpolateMagma;

const FOR = [
  [22, 20, 28],
  [216, 92, 30],
  [255, 222, 128],
];
const AGAINST = [
  [22, 20, 28],
  [36, 96, 190],
  [150, 214, 255],
];

/** Signed values, -1 to 1: 0 is dark, orange to yellow is for, blue against. As remcaps/explain/picture.h. */
export function balanceRgb(value: number): number[] {
  const strength = Math.min(1, Math.abs(value));
  const stops = value >= 0 ? FOR : AGAINST;
  const at = strength < 0.5 ? 0 : 1;
  const part = 2 * strength - at;
  return stops[at].map((low, c) => low * (1 - part) + stops[at + 1][c] * part);
}

/**
 * The same on the page instead of on an image, as CSS: 0 is as faint as the page allows, so that what
 * stands out is what contributes.
 */
export function balanceOnPage(value: number): string {
  const strength = Math.sqrt(Math.min(1, Math.abs(value)));
  const [full, alpha] = isDark()
    ? [value >= 0 ? "255,158,74" : "104,170,255", 0.1 + 0.9 * strength]
    : [value >= 0 ? "204,78,10" : "24,88,196", 0.08 + 0.92 * strength];
  return strength === 0
    ? `rgba(${isDark() ? "255,255,255" : "20,35,60"},0.1)`
    : `rgba(${full},${alpha})`;
}

/** The same for 0..1, against at 0 and for at 1. */
export const balanceColour = (value: number): string => balanceOnPage(2 * value - 1);

/** A colour bar for 0..1, as CSS. */
export function gradient(colour: (value: number) => string): string {
  const stops = Array.from({ length: 17 }, (_, k) => colour(k / 16));
  return `linear-gradient(to right, ${stops.join(", ")})`;
}
