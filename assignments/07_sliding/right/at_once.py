# A chunk is written in one go: only the rows that stay.
class SlidingCache(Slots):
    def stays(self, p):
        return (p < self.sinks) | (p >= self.length - self.window)

    def slots(self, p):
        return torch.where(p < self.sinks, p, self.sinks + (p - self.sinks) % self.window)

    def append(self, k, v):
        p = torch.arange(self.length, self.length + k.shape[1])
        self.length += k.shape[1]
        keep = self.stays(p)
        slots = self.slots(p[keep])
        self.k[:, slots], self.v[:, slots] = k[:, keep], v[:, keep]

    def read(self):
        p = torch.arange(self.length)
        p = p[self.stays(p)]
        return self.k[:, self.slots(p)], self.v[:, self.slots(p)], p
