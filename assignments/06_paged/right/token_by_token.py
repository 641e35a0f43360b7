# Blocks are taken by a helper; gather reads one token after the other.
class PagedCache(Pool):
    def take(self):
        if not self.empty:
            raise MemoryError("full")
        block = self.empty.pop()
        self.owners[block] = 1
        return block

    def append(self, seq, k, v):
        n, size = self.lengths.get(seq, 0), self.block_size
        if n % size == 0:
            block = self.take()
            self.tables.setdefault(seq, []).append(block)
        else:
            block = self.tables[seq][-1]
            if self.owners[block] > 1:
                copy = self.take()
                self.k[copy].copy_(self.k[block])
                self.v[copy].copy_(self.v[block])
                self.owners[block] -= 1
                self.tables[seq][-1] = block = copy
        self.k[block, :, n % size] = k
        self.v[block, :, n % size] = v
        self.lengths[seq] = n + 1

    def gather(self, seq):
        places = [divmod(p, self.block_size) for p in range(self.lengths[seq])]
        table = self.tables[seq]
        k = torch.stack([self.k[table[place], :, slot] for place, slot in places], 1)
        v = torch.stack([self.v[table[place], :, slot] for place, slot in places], 1)
        return k, v

    def fork(self, seq, new):
        self.tables[new] = list(self.tables[seq])
        self.lengths[new] = self.lengths[seq]
        for block in self.tables[seq]:
            self.owners[block] += 1

    def free(self, seq):
        if seq not in self.tables:
            raise KeyError(seq)
        for block in self.tables.pop(seq):
            self.owners[block] -= 1
            if not self.owners[block]:
                self.empty.append(block)
        self.lengths.pop(seq)
