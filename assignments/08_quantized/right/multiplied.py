# Values are multiplied by 127 over the largest one: the same codes but for the last bit of a float.
class QuantizedTail(Parts):
    def append(self, k):
        self.tail = torch.cat([self.tail, k], dim=1)
        while self.tail.shape[1] >= self.block:
            x, self.tail = self.tail[:, : self.block], self.tail[:, self.block :].clone()
            largest = x.abs().amax(1, keepdim=True)
            times = torch.where(largest > 0, 127 / largest.clamp(min=1e-30), 0)
            self.codes.append(torch.round(x * times).to(torch.int8))
            self.scales.append(largest / 127)

    def read(self):
        parts = [codes * scale for codes, scale in zip(self.codes, self.scales, strict=True)]
        return torch.cat([*parts, self.tail], dim=1)
