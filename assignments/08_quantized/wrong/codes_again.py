# At each full block everything is read back and coded again, with one scale for all blocks.
# score: 7  fails: test_once
class QuantizedTail(Parts):
    def append(self, k):
        self.tail = torch.cat([self.tail, k], dim=1)
        if self.tail.shape[1] < self.block:
            return
        x = self.read()
        full = x.shape[1] // self.block * self.block
        self.tail = x[:, full:].clone()
        scale = x[:, :full].abs().amax(1, keepdim=True) / 127
        codes = (x[:, :full] / torch.where(scale > 0, scale, 1)).round().to(torch.int8)
        self.codes = [*codes.split(self.block, dim=1)]
        self.scales = [scale] * len(self.codes)

    def read(self):
        pairs = zip(self.codes, self.scales, strict=True)
        return torch.cat([*(codes * scale for codes, scale in pairs), self.tail], dim=1)
