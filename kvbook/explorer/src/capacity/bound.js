/**
 * The most tokens that memory lets one decode step give: each step reads all weights and all of the cache once, so
 * it takes at least their bytes over the bandwidth, and gives each sequence one token. Bytes are one card's.
 */
export function decodeBound({ bandwidth, weightsBytes, cacheBytes, batch }) {
  const stepBytes = weightsBytes + cacheBytes;
  const perSequence = bandwidth / stepBytes;
  return { bandwidth, stepBytes, weightsBytes, cacheBytes, perSequence, total: perSequence * batch };
}
