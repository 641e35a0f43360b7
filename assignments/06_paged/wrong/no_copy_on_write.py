# A shared block is written as if it had one owner.
# score: 7  fails: test_copy_on_write
class PagedCache(Pool):
    def append(self, seq, k, v):
        place, slot = divmod(self.lengths.get(seq, 0), self.block_size)
        table = self.tables.get(seq, [])
        if slot == 0 and not self.empty:
            raise MemoryError("All blocks are in use.")
        self.tables[seq] = table
        if slot == 0:
            table.append(self.empty.pop())
            self.owners[table[place]] = 1
        self.k[table[place], :, slot], self.v[table[place], :, slot] = k, v
        self.lengths[seq] = self.lengths.get(seq, 0) + 1

    def gather(self, seq):
        table, length = self.tables[seq], self.lengths[seq]
        k, v = (held[table].transpose(0, 1).flatten(1, 2) for held in (self.k, self.v))
        return k[:, :length].clone(), v[:, :length].clone()

    def fork(self, seq, new):
        self.tables[new], self.lengths[new] = [*self.tables[seq]], self.lengths[seq]
        for block in self.tables[new]:
            self.owners[block] += 1

    def free(self, seq):
        del self.lengths[seq]
        for block in self.tables.pop(seq):
            self.owners[block] -= 1
            if self.owners[block] == 0:
                self.empty.append(block)
