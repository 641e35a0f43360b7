# Lengths are a Counter; gather puts whole blocks side by side and cuts.
from collections import Counter


class PagedCache(Pool):
    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.lengths = Counter()

    def append(self, seq, k, v):
        length = self.lengths[seq]
        place, slot = divmod(length, self.block_size)
        old = self.tables[seq][place] if slot else None
        if slot == 0 or self.owners[old] > 1:
            try:
                block = self.empty.pop()
            except IndexError:
                raise MemoryError("no block is left") from None
            self.owners[block] = 1
            if slot == 0:
                self.tables[seq] = [*self.tables.get(seq, []), block]
            else:
                self.owners[old] -= 1
                self.tables[seq][place] = block
                self.k[block, :, :slot] = self.k[old, :, :slot]
                self.v[block, :, :slot] = self.v[old, :, :slot]
        block = self.tables[seq][place]
        self.k[block][:, slot], self.v[block][:, slot] = k, v
        self.lengths[seq] += 1

    def gather(self, seq):
        if seq not in self.tables:
            raise KeyError(seq)
        rows = (torch.cat([held[b] for b in self.tables[seq]], 1) for held in (self.k, self.v))
        return tuple(held[:, : self.lengths[seq]].clone() for held in rows)

    def fork(self, seq, new):
        self.tables[new] = self.tables[seq].copy()
        self.lengths[new] = self.lengths[seq]
        for block in self.tables[new]:
            self.owners[block] += 1

    def free(self, seq):
        table = self.tables.pop(seq)
        del self.lengths[seq]
        for block in table:
            self.owners[block] -= 1
        self.empty += [block for block in table if self.owners[block] == 0]
