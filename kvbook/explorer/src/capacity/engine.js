// What this explorer asks of the accounting, in one place.
export * from "../accounting/index.js";
