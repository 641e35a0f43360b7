# A chunk is cut to its last rows before it is stored: its own first tokens, the sinks, are lost.
# score: 7  fails: test_chunks
class SlidingCache(Slots):
    def append(self, k, v):
        if k.shape[1] > self.window:
            self.length += k.shape[1] - self.window
            k, v = k[:, -self.window :], v[:, -self.window :]
        for i in range(k.shape[1]):
            slot = self.slot(self.length)
            self.k[:, slot], self.v[:, slot] = k[:, i], v[:, i]
            self.length += 1

    def read(self):
        oldest = max(self.sinks, self.length - self.window)
        held = [*range(min(self.sinks, self.length)), *range(oldest, self.length)]
        slots = [self.slot(p) for p in held]
        return self.k[:, slots], self.v[:, slots], torch.tensor(held, dtype=torch.long)

    def slot(self, p):
        return p if p < self.sinks else self.sinks + (p - self.sinks) % self.window
