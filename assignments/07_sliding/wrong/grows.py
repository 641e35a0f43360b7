# It keeps every row, and picks what to show when it is read.
# score: 9  fails: test_memory
class SlidingCache(Slots):
    def append(self, k, v):
        if self.length:
            k, v = torch.cat([self.k, k], dim=1), torch.cat([self.v, v], dim=1)
        self.k, self.v, self.length = k.clone(), v.clone(), k.shape[1]

    def read(self):
        p = torch.arange(self.length)
        p = p[(p < self.sinks) | (p >= self.length - self.window)]
        return self.k[:, p], self.v[:, p], p
