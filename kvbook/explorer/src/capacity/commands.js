// The state as a program and as a command, for where kvbook is installed. They give the same numbers. No DOM here.
import { overheadBytes } from "./figures.js";
import { OWN } from "../common/facts.js";

/** A JSON text without the spaces and line ends between its values; its numbers stay as they were written. */
export function compact(text) {
  return text.replace(/("(?:[^"\\]|\\.)*")|\s+/g, "$1");
}

const configText = ({ config: pasted }, model) =>
  model.id === OWN ? compact(pasted) : JSON.stringify(model.config);
const grouped = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, "_");
const call = (args) => args.filter(Boolean).join(", ");
/** JSON's escapes are Python's too, once everything else is ASCII. */
const quoted = (text) =>
  JSON.stringify(text).replace(/[^ -~]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

export function python(state, { model, card, plan, weightsBytes }) {
  const own = model.id === OWN;
  const { nKvHeads, window, sinks, fullEvery } = plan.change;
  const changed = Object.keys(plan.change).length > 0;
  const change = call([
    "spec",
    nKvHeads && `n_kv_heads=${nKvHeads}`,
    window && `window=${window}`,
    sinks > 0 && `sinks=${sinks}`,
    fullEvery && `full_every=${fullEvery}`,
  ]);
  const { cacheDtype, policy, tensorParallel, blockSize } = plan.options;
  const size = call([
    String(plan.tokens),
    `cache_dtype="${cacheDtype}"`,
    policy !== "exact" && `policy="${policy}"`,
    policy === "paged" && `block_size=${blockSize}`,
    tensorParallel > 1 && `tensor_parallel=${tensorParallel}`,
  ]);
  const lines = [
    own && "import json\n",
    "from kvbook.accounting import cache_spec, fit_users",
    !own && "from kvbook.accounting.facts import model",
    changed && "from kvbook.accounting.whatif import what_if",
    "",
    own ? `config = json.loads(${quoted(configText(state, model))})` : `config = model("${model.id}").config`,
    "spec = cache_spec(config)",
    changed && `spec = what_if(${change})`,
    `sequence = spec.nbytes(${size})`,
    "users = fit_users(",
    "    sequence,",
    `    memory_bytes=${grouped(card.memoryBytes)},`,
    `    weights_bytes=${grouped(weightsBytes)},`,
    state.utilization !== 1 && `    utilization=${state.utilization},`,
    tensorParallel > 1 && `    tensor_parallel=${tensorParallel},`,
    overheadBytes(state) > 0 && `    overhead_bytes=${grouped(overheadBytes(state))},`,
    ")",
    'print(f"{sequence:,} B a sequence, {users} users")',
  ];
  return lines.filter((line) => typeof line === "string").join("\n");
}

/** The command { text }, or { why } where the command has no option for these settings. */
export function command(state, { model, card, plan, weightsBytes }) {
  if (Object.keys(plan.change).length > 0) {
    return { why: "The command reads a config as it is; for other KV heads or a window, take the Python." };
  }
  const { cacheDtype, policy, tensorParallel, blockSize } = plan.options;
  const overhead = overheadBytes(state);
  const seen = card.reported ?? card.nominal; // what --gpu counts
  const words = [
    `python -m kvbook size - --context ${plan.tokens} --batch ${state.batch} --cache-dtype ${cacheDtype}`,
    policy !== "exact" && `--policy ${policy}`,
    policy === "paged" && `--block-size ${blockSize}`,
    tensorParallel > 1 && `--tensor-parallel ${tensorParallel}`,
    card.memoryBytes === seen ? `--gpu "${card.name}"` : `--memory-bytes ${card.memoryBytes}`,
    `--weights-bytes ${weightsBytes + overhead * tensorParallel}`,
    state.utilization !== 1 && `--utilization ${state.utilization}`,
  ];
  const note = overhead > 0 ? "# the bytes of the weights hold the overhead too\n" : "";
  return { text: `${note}${words.filter(Boolean).join(" ")} <<'END'\n${configText(state, model)}\nEND` };
}
