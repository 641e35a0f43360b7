# Rows come in the order of their slots.
# score: 3  fails: test_short_prefill
class SlidingCache(Slots):
    def append(self, k, v):
        for i in range(k.shape[1]):
            slot = self.slot(self.length)
            self.k[:, slot], self.v[:, slot] = k[:, i], v[:, i]
            self.length += 1

    def read(self):
        oldest = max(self.sinks, self.length - self.window)
        held = [*range(min(self.sinks, self.length)), *range(oldest, self.length)]
        held.sort(key=self.slot)
        slots = [self.slot(p) for p in held]
        return self.k[:, slots], self.v[:, slots], torch.tensor(held, dtype=torch.long)

    def slot(self, p):
        return p if p < self.sinks else self.sinks + (p - self.sinks) % self.window
