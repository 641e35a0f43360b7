// Whole numbers that are never rounded: Number as long as that is exact, BigInt beyond 2**53. No DOM here.

export function times(a, b) {
  const product = typeof a === "number" && typeof b === "number" ? a * b : Infinity;
  return product <= Number.MAX_SAFE_INTEGER ? product : BigInt(a) * BigInt(b);
}

export function plus(a, b) {
  const sum = typeof a === "number" && typeof b === "number" ? a + b : Infinity;
  return sum <= Number.MAX_SAFE_INTEGER ? sum : BigInt(a) + BigInt(b);
}

/** a / b, rounded up; neither is negative. */
export function ceilDiv(a, b) {
  if (typeof a === "number" && typeof b === "number") return (a - (a % b)) / b + (a % b > 0 ? 1 : 0);
  return plus((BigInt(a) + BigInt(b) - 1n) / BigInt(b), 0);
}

export const sum = (terms) => terms.reduce(plus, 0);
export const product = (factors) => factors.reduce(times, 1);
