// The book-keeping of blocks, as kvbook/lessons/paged.py does it, step for step. No DOM here.

export class OutOfBlocks extends Error {}

const ceilDiv = (n, d) => Math.ceil(n / d);

/** The blocks 0 to numBlocks - 1: how many owners each has, and which are free. */
export class BlockPool {
  constructor(numBlocks) {
    this.numBlocks = numBlocks;
    this.refCounts = new Array(numBlocks).fill(0); // owners
    this.empty = Array.from({ length: numBlocks }, (_, i) => numBlocks - 1 - i); // the last one is taken next
  }
  get numFreeBlocks() {
    return this.empty.length;
  }
  checkInUse(block) {
    if (!(block >= 0 && block < this.numBlocks && this.refCounts[block] > 0))
      throw new Error(`block is ${block}; it must be one that is in use.`);
  }
  /** A free block, for one owner. */
  take() {
    if (this.empty.length === 0) throw new OutOfBlocks(`All ${this.numBlocks} blocks are in use.`);
    const block = this.empty.pop();
    this.refCounts[block] = 1;
    return block;
  }
  share(block) {
    this.checkInUse(block);
    this.refCounts[block] += 1;
  }
  /** One owner fewer. When the last one goes, the block is free. */
  giveBack(block) {
    this.checkInUse(block);
    this.refCounts[block] -= 1;
    if (this.refCounts[block] === 0) this.empty.push(block);
  }
}

/** A pool in which a named block keeps its rows when its last owner goes; the one unused for longest is lost first. */
export class NamedPool extends BlockPool {
  constructor(numBlocks) {
    super(numBlocks);
    this.blockOf = new Map();
    this.nameOf = new Map();
    this.unused = new Set(); // named and free; longest first
  }
  get numFreeBlocks() {
    return this.empty.length + this.unused.size;
  }
  name(block, name) {
    this.checkInUse(block);
    if (this.blockOf.has(name) || this.nameOf.has(block)) return;
    this.blockOf.set(name, block);
    this.nameOf.set(block, name);
  }
  take() {
    if (this.empty.length === 0 && this.unused.size > 0) {
      const [block] = this.unused;
      this.unused.delete(block);
      this.blockOf.delete(this.nameOf.get(block));
      this.nameOf.delete(block);
      this.empty.push(block);
    }
    return super.take();
  }
  share(block) {
    if (this.unused.delete(block)) this.refCounts[block] = 1;
    else super.share(block);
  }
  giveBack(block) {
    super.giveBack(block);
    if (this.refCounts[block] === 0 && this.nameOf.has(block)) this.unused.add(this.empty.pop());
  }
}

/** Sequences that grow and end, each in blocks of its own. */
export class GrowingTables {
  constructor(numBlocks, blockSize, Pool = BlockPool) {
    this.pool = new Pool(numBlocks);
    this.blockSize = blockSize;
    this.tables = new Map(); // of each live sequence its blocks, in order
    this.lengths = new Map(); // and its tokens
    this.started = 0;
  }
  start() {
    const seq = this.started++;
    this.tables.set(seq, []);
    this.lengths.set(seq, 0);
    return seq;
  }
  checkLive(seq, n = 0) {
    if (!this.tables.has(seq) || !Number.isInteger(n) || n < 0)
      throw new Error(`${n} tokens for sequence ${seq}: it must be live, and n >= 0.`);
  }
  /** Blocks to be taken for n more tokens of a sequence. */
  missing(seq, n) {
    this.checkLive(seq, n);
    const blocks = ceilDiv(this.lengths.get(seq) + n, this.blockSize);
    return Math.max(0, blocks - this.tables.get(seq).length);
  }
  /** Make room, or throw OutOfBlocks before anything is taken. Returns copies to make: [from, to]. */
  reserve(seq, n) {
    const missing = this.missing(seq, n);
    const free = this.pool.numFreeBlocks;
    if (missing > free) throw new OutOfBlocks(`${missing} blocks are needed; ${free} are free.`);
    const table = this.tables.get(seq);
    const tokens = this.lengths.get(seq) + n;
    while (table.length * this.blockSize < tokens) table.push(this.pool.take());
    return [];
  }
  /** Count n more tokens, making room for them. */
  append(seq, n = 1) {
    const copies = this.reserve(seq, n);
    this.lengths.set(seq, this.lengths.get(seq) + n);
    return copies;
  }
  /** End a sequence, its last block first. */
  free(seq) {
    if (!this.tables.has(seq)) throw new Error(`sequence is ${seq}; it was freed before, or never started.`);
    const table = this.tables.get(seq);
    this.lengths.delete(seq);
    this.tables.delete(seq);
    for (const block of table.reverse()) this.pool.giveBack(block);
  }
}

/** Sequences that may share blocks. A block with two owners is never written: copy on write. */
export class SharedTables extends GrowingTables {
  /** A second sequence with the same tokens, in the same blocks. */
  fork(seq) {
    this.checkLive(seq);
    const blocks = ceilDiv(this.lengths.get(seq), this.blockSize);
    const made = super.start();
    this.tables.set(made, this.tables.get(seq).slice(0, blocks));
    this.lengths.set(made, this.lengths.get(seq));
    for (const block of this.tables.get(made)) this.pool.share(block);
    return made;
  }
  /** The place in the table of the block that a sequence grows into, if it has that block; else -1. */
  written(seq, n) {
    const place = Math.floor(this.lengths.get(seq) / this.blockSize);
    return n > 0 && place < this.tables.get(seq).length ? place : -1;
  }
  isShared(seq, place) {
    return place >= 0 && this.pool.refCounts[this.tables.get(seq)[place]] > 1;
  }
  missing(seq, n) {
    const missing = super.missing(seq, n);
    return missing + (this.isShared(seq, this.written(seq, n)) ? 1 : 0);
  }
  reserve(seq, n) {
    super.reserve(seq, n); // which has counted the copy, too
    const place = this.written(seq, n);
    if (!this.isShared(seq, place)) return [];
    const table = this.tables.get(seq);
    const block = table[place];
    table[place] = this.pool.take();
    this.pool.giveBack(block);
    return [[block, table[place]]];
  }
}

/** Block tables whose sequences find the blocks of an equal beginning again. */
export class BlockManager extends SharedTables {
  constructor(numBlocks, blockSize) {
    super(numBlocks, blockSize, NamedPool);
    this.names = new Map(); // name before and own tokens -> name, a number: the hash's part, without collisions
  }
  /** A name for each full block of tokens: one name only for blocks before which all is the same. */
  *blockNames(tokens) {
    let name = -1;
    for (let end = this.blockSize; end <= tokens.length; end += this.blockSize) {
      const key = `${name}:${tokens.slice(end - this.blockSize, end).join()}`;
      if (!this.names.has(key)) this.names.set(key, this.names.size);
      name = this.names.get(key);
      yield name;
    }
  }
  /** A new sequence, with the blocks of the longest known beginning of its prompt; the last token is never found. */
  start(prompt = []) {
    const seq = super.start();
    const table = this.tables.get(seq);
    for (const name of this.blockNames(prompt.slice(0, -1))) {
      const block = this.pool.blockOf.get(name);
      if (block === undefined) break;
      this.pool.share(block);
      table.push(block);
    }
    this.lengths.set(seq, table.length * this.blockSize);
    return seq;
  }
  /** Name a sequence's full blocks by its tokens. */
  remember(seq, tokens) {
    this.checkLive(seq);
    if (tokens.length > this.lengths.get(seq))
      throw new Error(`${tokens.length} tokens; sequence ${seq} holds ${this.lengths.get(seq)}.`);
    const table = this.tables.get(seq);
    let place = 0;
    for (const name of this.blockNames(tokens)) this.pool.name(table[place++], name);
  }
}
