# A token goes to slot length % window, sinks or not.
# score: 6  fails: test_short_prefill
class SlidingCache(Slots):
    def append(self, k, v):
        for i in range(k.shape[1]):
            slot = self.place()
            self.k[:, slot], self.v[:, slot] = k[:, i], v[:, i]
            self.length += 1

    def read(self):
        oldest = max(self.sinks, self.length - self.window)
        held = [*range(min(self.sinks, self.length)), *range(oldest, self.length)]
        slots = [self.slot(p) for p in held]
        return self.k[:, slots], self.v[:, slots], torch.tensor(held, dtype=torch.long)

    def place(self):
        p = self.length
        return p if p < self.sinks else self.sinks + p % self.window

    def slot(self, p):
        return p if p < self.sinks else self.sinks + (p - self.sinks) % self.window
