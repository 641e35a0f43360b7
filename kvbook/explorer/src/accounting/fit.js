// How many users fit: free memory divided by the cache of one sequence, in exact arithmetic. No DOM here.
import { ConfigError, shown } from "./errors.js";
import { checkCount } from "./spec.js";

const MOST_BYTES = 2n ** 60n;
const MOST_GPUS = 2 ** 16;

/**
 * Sequences that fit on one GPU: floor((memory · utilization − weights / T − overhead) / one sequence).
 * Memory, overhead and sequence are those of one GPU, the weights the whole model's. 0 where the weights
 * alone do not fit; null where a sequence takes no cache, so that any number fits.
 */
export function users({
  sequenceBytes,
  memoryBytes,
  weightsBytes,
  utilization = 1,
  tensorParallel = 1,
  overheadBytes = 0,
}) {
  checkCount("sequence_bytes", sequenceBytes, { low: 0, high: MOST_BYTES });
  checkCount("memory_bytes", memoryBytes, { high: MOST_BYTES });
  checkCount("weights_bytes", weightsBytes, { low: 0, high: MOST_BYTES });
  checkCount("overhead_bytes", overheadBytes, { low: 0, high: MOST_BYTES });
  checkCount("tensor_parallel", tensorParallel, { high: MOST_GPUS });
  const { top, bottom } = asUtilization(utilization);
  if (Number(sequenceBytes) === 0) return null;
  const parallel = BigInt(tensorParallel);
  const free = // times bottom and parallel, so that nothing is rounded
    BigInt(memoryBytes) * top * parallel - (BigInt(weightsBytes) + BigInt(overheadBytes) * parallel) * bottom;
  return free <= 0n ? 0 : Number(free / (BigInt(sequenceBytes) * bottom * parallel));
}

/** The decimal as it is written, so that 0.9 is nine tenths: { top, bottom }; above 0 and at most 1. */
export function asUtilization(value) {
  const text = String(value);
  const plain = /^([0-9]*)\.?([0-9]{1,30})$/;
  const small = /^([0-9]+)\.?([0-9]*)e-([0-9]+)$/; // as a number is written, 1e-7; a text must not be
  const match = text.match(plain) ?? (typeof value === "number" ? text.match(small) : null);
  if (match) {
    const decimals = (text.includes(".") || match[3] ? match[2].length : 0) + Number(match[3] ?? 0);
    const top = BigInt(match[1] + match[2]);
    const bottom = 10n ** BigInt(decimals);
    if (top > 0n && top <= bottom) return { top, bottom };
  }
  throw new ConfigError(`utilization is ${shown(text)}; it must be above 0 and at most 1.`);
}
