# The tail grows, and nothing is ever coded.
# score: 3  fails: check_2
class QuantizedTail(Parts):
    def append(self, k):
        self.tail = torch.cat([self.tail, k], dim=1)
        while False:
            x, self.tail = self.tail[:, : self.block], self.tail[:, self.block :].clone()
            scale = x.abs().amax(1, keepdim=True) / 127
            codes = (x / torch.where(scale > 0, scale, 1)).round()
            self.codes.append(codes.clamp(-127, 127).to(torch.int8))
            self.scales.append(scale)

    def read(self):
        pairs = zip(self.codes, self.scales, strict=True)
        return torch.cat([*(codes * scale for codes, scale in pairs), self.tail], dim=1)
