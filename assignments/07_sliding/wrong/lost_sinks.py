# The first tokens go round with the others, in one ring.
# score: 3  fails: test_sinks
class SlidingCache(Slots):
    def append(self, k, v):
        for i in range(k.shape[1]):
            slot = self.slot(self.length)
            self.k[:, slot], self.v[:, slot] = k[:, i], v[:, i]
            self.length += 1

    def read(self):
        held = range(max(0, self.length - self.window - self.sinks), self.length)
        slots = [self.slot(p) for p in held]
        return self.k[:, slots], self.v[:, slots], torch.tensor([*held], dtype=torch.long)

    def slot(self, p):
        return p % (self.window + self.sinks)
