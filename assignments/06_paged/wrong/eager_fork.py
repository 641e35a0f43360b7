# A fork copies every block at once.
# score: 4  fails: check_2
class PagedCache(Pool):
    def append(self, seq, k, v):
        place, slot = divmod(self.lengths.get(seq, 0), self.block_size)
        table = self.tables.get(seq, [])
        shared = slot > 0 and self.owners[table[place]] > 1
        if (slot == 0 or shared) and not self.empty:
            raise MemoryError("All blocks are in use.")
        self.tables[seq] = table
        if slot == 0:
            table.append(self.empty.pop())
            self.owners[table[place]] = 1
        elif shared:
            old, new = table[place], self.empty.pop()
            self.k[new], self.v[new] = self.k[old], self.v[old]
            self.owners[old] -= 1
            self.owners[new], table[place] = 1, new
        self.k[table[place], :, slot], self.v[table[place], :, slot] = k, v
        self.lengths[seq] = self.lengths.get(seq, 0) + 1

    def gather(self, seq):
        table, length = self.tables[seq], self.lengths[seq]
        k, v = (held[table].transpose(0, 1).flatten(1, 2) for held in (self.k, self.v))
        return k[:, :length].clone(), v[:, :length].clone()

    def fork(self, seq, new):
        self.tables[new], self.lengths[new] = [*self.tables[seq]], self.lengths[seq]
        for place, old in enumerate(self.tables[new]):
            block = self.empty.pop()
            self.k[block], self.v[block] = self.k[old], self.v[old]
            self.owners[block], self.tables[new][place] = 1, block

    def free(self, seq):
        del self.lengths[seq]
        for block in self.tables.pop(seq):
            self.owners[block] -= 1
            if self.owners[block] == 0:
                self.empty.append(block)
